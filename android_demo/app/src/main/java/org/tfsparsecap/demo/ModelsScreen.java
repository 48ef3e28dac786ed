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

/** The views of the models screen; renders a {@link ModelsState}. */
final class ModelsScreen {
  // Narrower columns would break too many words.
  private static final int MIN_COLUMN_WIDTH = 160;

  private final Activity activity;
  private final ModelsViewModel viewModel;
  private final NoticeCard notice;
  private final ImageView photo;
  private final TextView summary;
  private final LinearLayout cards;
  private final View open;

  private AlertDialog removalDialog;

  ModelsScreen(Activity activity, ModelsViewModel viewModel, Runnable chooseModel) {
    this.activity = activity;
    this.viewModel = viewModel;
    notice = new NoticeCard(activity, viewModel::dismissNotice);
    photo = activity.findViewById(R.id.compared_photo);
    summary = activity.findViewById(R.id.summary);
    cards = activity.findViewById(R.id.cards);
    open = activity.findViewById(R.id.open_model);
    open.setOnClickListener(clicked -> chooseModel.run());
  }

  /** Renders a state. */
  void show(ModelsState state) {
    notice.show(state.notice());
    MainScreen.setVisible(photo, state.photo() != null);
    if (state.photo() != null && !shows(photo, state)) {
      photo.setImageBitmap(state.photo());
    }
    MainScreen.setText(summary, summary(state));
    open.setEnabled(!state.opening());
    showCards(state);
    showDialog(state.confirmingRemoval());
  }

  /** Closes the dialog without an answer; it is shown again with the next state that needs it. */
  void closeDialog() {
    if (removalDialog != null) {
      removalDialog.dismiss();
      removalDialog = null;
    }
  }

  private void showDialog(boolean confirmingRemoval) {
    if (!confirmingRemoval) {
      closeDialog();
    } else if (removalDialog == null) {
      removalDialog =
          new AlertDialog.Builder(activity)
              .setMessage(R.string.model_remove_question)
              .setPositiveButton(R.string.model_remove, (dialog, which) -> viewModel.onRemovalAnswer(true))
              .setNegativeButton(R.string.cancel, (dialog, which) -> viewModel.onRemovalAnswer(false))
              .setOnCancelListener(dialog -> viewModel.onRemovalAnswer(false))
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

  /** Side by side if there is enough space, otherwise below each other. */
  private void arrange(int count) {
    Configuration phone = activity.getResources().getConfiguration();
    boolean columns = phone.screenWidthDp / phone.fontScale / Math.max(1, count) >= MIN_COLUMN_WIDTH;
    cards.setOrientation(columns ? LinearLayout.HORIZONTAL : LinearLayout.VERTICAL);
    cards.removeAllViews();
    for (int i = 0; i < count; i++) {
      View card = LayoutInflater.from(activity).inflate(R.layout.card_model, cards, false);
      LinearLayout.LayoutParams place = (LinearLayout.LayoutParams) card.getLayoutParams();
      if (columns) {
        place.width = 0;
        place.weight = 1;
        place.setMarginStart(i == 0 ? 0 : activity.getResources().getDimensionPixelSize(R.dimen.spacing));
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
    ModelInfo info = row.info();
    set(card, R.id.model_title, title);
    set(
        card,
        R.id.model_size,
        info == null ? "" : Formatter.formatShortFileSize(activity, info.bytes()));
    set(card, R.id.model_sparsity, info == null ? "" : sparsity(info));
    set(card, R.id.model_time, time(row, state));
    set(
        card,
        R.id.model_caption,
        CaptionFormat.sentence(activity, row.caption(), row.objects()));
    set(
        card,
        R.id.model_confidence,
        CaptionFormat.confidence(activity, row.caption(), row.objects()));
    View useButton = card.findViewById(R.id.model_use);
    MainScreen.setVisible(useButton, !used && done);
    useButton.setContentDescription(activity.getString(R.string.model_use_named, title));
    useButton.setOnClickListener(clicked -> viewModel.use(row.choice()));
    MainScreen.setVisible(card.findViewById(R.id.model_in_use), used);
    View removeButton = card.findViewById(R.id.model_remove);
    MainScreen.setVisible(removeButton, row.choice() == ModelChoice.USER);
    removeButton.setContentDescription(activity.getString(R.string.model_remove_named, userModelName()));
    removeButton.setOnClickListener(clicked -> viewModel.askToRemove());
  }

  private String sparsity(ModelInfo info) {
    if (!info.sparsity().isPresent()) {
      return "";
    }
    if (info.sparsity().getAsDouble() == 0) {
      return activity.getString(R.string.model_not_sparse);
    }
    return activity.getString(
        info.zerosStored() ? R.string.model_zeros_stored : R.string.model_zeros_not_stored,
        CaptionFormat.percent(activity, info.sparsity().getAsDouble()));
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
      float speedRatio = dense.milliseconds() / sparse.milliseconds();
      float sizeRatio = (float) dense.info().bytes() / sparse.info().bytes();
      return activity.getString(R.string.summary_compared, number(speedRatio, 1), number(sizeRatio, 1));
    }
    return activity.getString(R.string.summary_measuring);
  }

  private static boolean isMeasured(ModelRow row) {
    return row != null && !Float.isNaN(row.milliseconds());
  }

  private String title(ModelRow row) {
    if (row.choice() == ModelChoice.USER) {
      return activity.getString(R.string.model_user_named, userModelName());
    }
    // The app may be built with any model.
    boolean sparse = row.info() == null || row.info().sparsity().orElse(0) > 0;
    return activity.getString(
        row.choice() == ModelChoice.SPARSE && !sparse
            ? R.string.model_built_in
            : row.choice().title());
  }

  private String userModelName() {
    return CaptionApplication.of(activity).models().userModelName();
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
    MainScreen.setVisible(view, text.length() > 0);
  }
}
