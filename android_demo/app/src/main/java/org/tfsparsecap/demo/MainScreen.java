package org.tfsparsecap.demo;

import android.app.Activity;
import android.view.LayoutInflater;
import android.view.View;
import android.view.ViewGroup;
import android.widget.ImageView;
import android.widget.Switch;
import android.widget.TextView;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** The views of the main screen; renders a {@link MainState}. */
final class MainScreen {
  /** User actions that need other apps. */
  interface Actions {
    void choosePhotos();

    void takePhoto();

    void copy(String caption);

    void share(String caption);
  }

  /** A wide beam finds more captions, which differ little. */
  private static final int MAX_ALTERNATIVES = 2;

  private final Activity activity;
  private final MainViewModel viewModel;
  private final NoticeCard notice;
  private final View welcome;
  private final View photoPane;
  private final PhotoView photo;
  private final View thumbnailsScroll;
  private final ViewGroup thumbnails;
  private final View captionPanel;
  private final TextView caption;
  private final TextView confidence;
  private final TextView problem;
  private final View actions;
  private final View retry;
  private final View alternativesCard;
  private final ViewGroup alternatives;
  private final Switch readAloud;

  private List<Caption> shownAlternatives;

  MainScreen(Activity activity, MainViewModel viewModel, Actions actionHandler) {
    this.activity = activity;
    this.viewModel = viewModel;
    notice = new NoticeCard(activity, viewModel::dismissNotice);
    welcome = activity.findViewById(R.id.welcome);
    photoPane = activity.findViewById(R.id.photo_pane);
    photo = activity.findViewById(R.id.photo);
    thumbnailsScroll = activity.findViewById(R.id.thumbnails_scroll);
    thumbnails = activity.findViewById(R.id.thumbnails);
    captionPanel = activity.findViewById(R.id.caption_panel);
    caption = activity.findViewById(R.id.caption);
    confidence = activity.findViewById(R.id.confidence);
    problem = activity.findViewById(R.id.problem);
    actions = activity.findViewById(R.id.actions);
    retry = activity.findViewById(R.id.retry);
    alternativesCard = activity.findViewById(R.id.alternatives_card);
    alternatives = activity.findViewById(R.id.alternatives);
    readAloud = activity.findViewById(R.id.read_aloud);

    onClick(R.id.choose_photos, actionHandler::choosePhotos);
    onClick(R.id.take_photo, actionHandler::takePhoto);
    onClick(R.id.speak, viewModel::speak);
    onClick(R.id.retry, viewModel::retry);
    onClick(R.id.copy, () -> actionHandler.copy(sentence(viewModel.state().selected())));
    onClick(R.id.share, () -> actionHandler.share(sentence(viewModel.state().selected())));
    readAloud.setOnCheckedChangeListener((view, on) -> viewModel.setReadAloud(on));
  }

  /**
   * Renders a state. Unchanged views are not touched, so that screen readers do not repeat them.
   */
  void show(MainState state) {
    notice.show(state.notice());
    readAloud.setChecked(state.readAloud());
    Photo selected = state.selected();
    setVisible(welcome, selected == null);
    setVisible(photoPane, selected != null);
    setVisible(captionPanel, selected != null);
    if (selected != null) {
      showPhoto(state, selected);
      showThumbnails(state);
      showCaption(selected);
    }
  }

  private void showPhoto(MainState state, Photo selected) {
    photo.setImage(state.image() == null ? selected.thumbnail() : state.image());
    setVisible(photo, selected.readable() || selected.thumbnail() != null);
    setDescription(
        photo,
        selected.caption().isEmpty()
            ? activity.getString(R.string.photo_not_described)
            : activity.getString(R.string.photo_described, sentence(selected)));
  }

  private void showThumbnails(MainState state) {
    int count = state.photos().size();
    setVisible(thumbnailsScroll, count > 1);
    if (count < 2) {
      thumbnails.removeAllViews();
      return;
    }
    while (thumbnails.getChildCount() > count) {
      thumbnails.removeViewAt(count);
    }
    while (thumbnails.getChildCount() < count) {
      int index = thumbnails.getChildCount();
      View thumbnail = LayoutInflater.from(activity).inflate(R.layout.thumbnail, thumbnails, false);
      thumbnail.setOnClickListener(view -> viewModel.select(index));
      thumbnails.addView(thumbnail);
    }
    for (int i = 0; i < count; i++) {
      Photo each = state.photos().get(i);
      ImageView thumbnail = (ImageView) thumbnails.getChildAt(i);
      thumbnail.setImageBitmap(each.thumbnail());
      thumbnail.setSelected(i == state.selectedIndex());
      setDescription(
          thumbnail,
          activity.getString(R.string.thumbnail_described, i + 1, count, status(each)));
    }
  }

  private void showCaption(Photo selected) {
    boolean captioned = !selected.captions().isEmpty();
    Message shownProblem = selected.problem();
    Caption best = selected.best();
    List<String> objects = selected.objects();
    CharSequence text = captioned ? CaptionFormat.sentence(activity, best, objects) : status(selected);
    setText(caption, captioned || shownProblem == null ? text : "");
    setVisible(caption, caption.length() > 0);
    setText(confidence, CaptionFormat.confidence(activity, best, objects));
    setVisible(confidence, confidence.length() > 0);
    setText(problem, shownProblem == null ? "" : shownProblem.text(activity));
    setVisible(problem, shownProblem != null);
    setVisible(actions, captioned);
    setVisible(retry, shownProblem != null);
    // Behind the objects, the best caption is one of the possible ones.
    int first = !captioned || CaptionFormat.namesObjects(best, objects) ? 0 : 1;
    int end = Math.min(selected.captions().size(), first + MAX_ALTERNATIVES);
    showAlternatives(selected.captions().subList(first, end));
  }

  private void showAlternatives(List<Caption> captions) {
    if (captions.equals(shownAlternatives)) {
      return;
    }
    shownAlternatives = captions;
    alternatives.removeAllViews();
    for (Caption each : captions) {
      View row = LayoutInflater.from(activity).inflate(R.layout.row_caption, alternatives, false);
      setText(row.findViewById(R.id.row_text), CaptionFormat.caption(each));
      setText(row.findViewById(R.id.row_confidence), CaptionFormat.percent(activity, each));
      alternatives.addView(row);
    }
    setVisible(alternativesCard, !captions.isEmpty());
  }

  private String sentence(Photo each) {
    return CaptionFormat.sentence(activity, each);
  }

  /** The caption or the likely objects, or the reason why there are none. */
  private String status(Photo each) {
    if (!each.captions().isEmpty()) {
      return sentence(each);
    }
    if (each.problem() != null) {
      return each.problem().text(activity);
    }
    return activity.getString(
        each.id() == viewModel.state().selected().id() ? R.string.describing : R.string.waiting);
  }

  private void onClick(int view, Runnable action) {
    activity.findViewById(view).setOnClickListener(clicked -> action.run());
  }

  static void setVisible(View view, boolean visible) {
    view.setVisibility(visible ? View.VISIBLE : View.GONE);
  }

  static void setText(TextView view, CharSequence text) {
    if (!view.getText().toString().contentEquals(text)) {
      view.setText(text);
    }
  }

  private static void setDescription(View view, String description) {
    if (!description.contentEquals(String.valueOf(view.getContentDescription()))) {
      view.setContentDescription(description);
    }
  }
}
