package org.tfsparsecap.demo;

import android.app.Activity;
import android.app.AlertDialog;
import android.content.res.Configuration;
import android.graphics.drawable.BitmapDrawable;
import android.text.format.Formatter;
import android.view.LayoutInflater;
import android.view.View;
import android.view.ViewGroup;
import android.widget.ImageView;
import android.widget.LinearLayout;
import android.widget.TextView;
import java.text.NumberFormat;

/** The views of the models: draws a {@link ModelsState} and nothing else. */
final class ModelsScreen {
  // Narrower columns would break every other word.
  private static final int NARROWEST_COLUMN = 160;

  private final Activity activity;
  private final ModelsViewModel viewModel;
  private final NoticeCard notice;
  private final ImageView photo;
  private final TextView summary;
  private final LinearLayout cards;
  private final View open;

  private AlertDialog question;

  ModelsScreen(Activity activity, ModelsViewModel viewModel, Runnable chooseModel) {
    this.activity = activity;
    this.viewModel = viewModel;
    notice = new NoticeCard(activity, viewModel::dismissNotice);
    photo = activity.findViewById(R.id.compared);
    summary = activity.findViewById(R.id.summary);
    cards = activity.findViewById(R.id.cards);
    open = activity.findViewById(R.id.open_model);
    open.setOnClickListener(clicked -> chooseModel.run());
  }

  /** Draws a state. */
  void show(ModelsState state) {
    notice.show(state.notice());
    MainScreen.visible(photo, state.photo() != null);
    if (state.photo() != null && !shows(photo, state)) {
      photo.setImageBitmap(state.photo());
    }
    MainScreen.setText(summary, summary(state));
    open.setEnabled(!state.opening());
    showCards(state);
    showQuestion(state.asking());
  }

  /** Takes the question off the screen without an answer; it comes back with the next state that asks it. */
  void closeQuestion() {
    if (question != null) {
      question.dismiss();
      question = null;
    }
  }

  private void showQuestion(boolean asking) {
    if (!asking) {
      closeQuestion();
    } else if (question == null) {
      question =
          new AlertDialog.Builder(activity)
              .setMessage(R.string.model_remove_question)
              .setPositiveButton(R.string.model_remove, (dialog, which) -> viewModel.answerToRemove(true))
              .setNegativeButton(R.string.cancel, (dialog, which) -> viewModel.answerToRemove(false))
              .setOnCancelListener(dialog -> viewModel.answerToRemove(false))
              .show();
    }
  }

  private static boolean shows(ImageView view, ModelsState state) {
    return view.getDrawable() instanceof BitmapDrawable
        && ((BitmapDrawable) view.getDrawable()).getBitmap() == state.photo();
  }

  private void showCards(ModelsState state) {
    int count = state.rows().size();
    if (cards.getChildCount() != count) {
      arrange(count);
    }
    for (int i = 0; i < count; i++) {
      show(cards.getChildAt(i), state.rows().get(i), state);
    }
  }

  /** Side by side where there is room for it, or below each other. */
  private void arrange(int count) {
    Configuration phone = activity.getResources().getConfiguration();
    boolean columns = phone.screenWidthDp / phone.fontScale / Math.max(1, count) >= NARROWEST_COLUMN;
    cards.setOrientation(columns ? LinearLayout.HORIZONTAL : LinearLayout.VERTICAL);
    cards.removeAllViews();
    for (int i = 0; i < count; i++) {
      View card = LayoutInflater.from(activity).inflate(R.layout.card_model, cards, false);
      LinearLayout.LayoutParams place = (LinearLayout.LayoutParams) card.getLayoutParams();
      if (columns) {
        place.width = 0;
        place.weight = 1;
        place.setMarginStart(i == 0 ? 0 : activity.getResources().getDimensionPixelSize(R.dimen.gap));
      } else {
        place.height = ViewGroup.LayoutParams.WRAP_CONTENT;
      }
      cards.addView(card, place);
    }
  }

  private void show(View card, ModelRow row, ModelsState state) {
    String title = title(row);
    boolean used = row.choice() == state.chosen();
    boolean done = row.stage() == ModelRow.Stage.DONE;
    ModelFacts facts = row.facts();
    set(card, R.id.model_title, title);
    set(
        card,
        R.id.model_size,
        facts == null ? "" : Formatter.formatShortFileSize(activity, facts.bytes()));
    set(card, R.id.model_sparsity, facts == null ? "" : sparsity(facts));
    set(card, R.id.model_time, time(row, state));
    set(
        card,
        R.id.model_caption,
        row.caption() == null ? "" : MainScreen.inItsLanguage(Words.of(row.caption())));
    set(
        card,
        R.id.model_sure,
        row.caption() == null ? "" : Words.sureness(activity, row.caption()));
    View use = card.findViewById(R.id.model_use);
    MainScreen.visible(use, !used && done);
    use.setContentDescription(activity.getString(R.string.model_use_named, title));
    use.setOnClickListener(clicked -> viewModel.use(row.choice()));
    MainScreen.visible(card.findViewById(R.id.model_used), used);
    View removal = card.findViewById(R.id.model_remove);
    MainScreen.visible(removal, row.choice() == ModelChoice.OWN);
    removal.setContentDescription(activity.getString(R.string.model_remove_named, ownName()));
    removal.setOnClickListener(clicked -> viewModel.askToRemove());
  }

  private String sparsity(ModelFacts facts) {
    if (!facts.sparsity().isPresent()) {
      return "";
    }
    if (facts.sparsity().getAsDouble() == 0) {
      return activity.getString(R.string.model_not_sparse);
    }
    return activity.getString(
        facts.zerosStored() ? R.string.model_zeros_stored : R.string.model_zeros_left_out,
        Words.percent(activity, facts.sparsity().getAsDouble()));
  }

  private String time(ModelRow row, ModelsState state) {
    switch (row.stage()) {
      case WAITING:
        return activity.getString(R.string.model_waiting);
      case MEASURING:
        return activity.getString(R.string.model_measuring);
      case FAILED:
        return row.problem().text(activity);
      default:
        if (Float.isNaN(row.milliseconds())) {
          return state.hasPhoto() ? activity.getString(R.string.model_time_unknown) : "";
        }
        return activity.getString(
            R.string.model_time, number(row.milliseconds(), row.milliseconds() < 10 ? 1 : 0));
    }
  }

  private String summary(ModelsState state) {
    if (state.opening()) {
      return activity.getString(R.string.opening_model);
    }
    if (state.rows().isEmpty()) {
      return activity.getString(R.string.problem_model_missing);
    }
    if (!state.hasPhoto()) {
      return activity.getString(R.string.summary_choose_photo);
    }
    if (state.rows().size() == 1) {
      return activity.getString(R.string.summary_one_model);
    }
    ModelRow sparse = state.row(ModelChoice.SPARSE);
    ModelRow dense = state.row(ModelChoice.DENSE);
    if (isMeasured(sparse) && isMeasured(dense)) {
      float faster = dense.milliseconds() / sparse.milliseconds();
      float smaller = (float) dense.facts().bytes() / sparse.facts().bytes();
      return activity.getString(R.string.summary_compared, number(faster, 1), number(smaller, 1));
    }
    return activity.getString(R.string.summary_measuring);
  }

  private static boolean isMeasured(ModelRow row) {
    return row != null && !Float.isNaN(row.milliseconds());
  }

  private String title(ModelRow row) {
    if (row.choice() == ModelChoice.OWN) {
      return activity.getString(R.string.model_own_named, ownName());
    }
    // An app may be built with any model.
    boolean sparse = row.facts() == null || row.facts().sparsity().orElse(0) > 0;
    return activity.getString(
        row.choice() == ModelChoice.SPARSE && !sparse
            ? R.string.model_built_in
            : row.choice().title());
  }

  private String ownName() {
    return CaptionApplication.of(activity).models().ownName();
  }

  private String number(float value, int digits) {
    NumberFormat format =
        NumberFormat.getInstance(activity.getResources().getConfiguration().getLocales().get(0));
    format.setMinimumFractionDigits(digits);
    format.setMaximumFractionDigits(digits);
    return format.format(value);
  }

  private static void set(View card, int id, CharSequence text) {
    TextView view = card.findViewById(id);
    MainScreen.setText(view, text);
    MainScreen.visible(view, text.length() > 0);
  }
}
