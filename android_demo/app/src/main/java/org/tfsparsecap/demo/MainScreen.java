package org.tfsparsecap.demo;

import android.app.Activity;
import android.text.SpannableString;
import android.text.Spanned;
import android.text.style.LocaleSpan;
import android.view.LayoutInflater;
import android.view.View;
import android.view.ViewGroup;
import android.widget.ImageView;
import android.widget.Switch;
import android.widget.TextView;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** The views of the first screen: draws a {@link UiState} and nothing else. */
final class MainScreen {
  /** What the person asks for that takes another app. */
  interface Actions {
    void choosePhotos();

    void takePhoto();

    void copy(String caption);

    void share(String caption);
  }

  private final Activity activity;
  private final CaptionViewModel viewModel;
  private final NoticeCard notice;
  private final View welcome;
  private final View photoPane;
  private final PhotoView photo;
  private final View stripScroll;
  private final ViewGroup strip;
  private final View words;
  private final TextView caption;
  private final TextView sure;
  private final TextView problem;
  private final View actions;
  private final View retry;
  private final View othersCard;
  private final ViewGroup others;
  private final Switch aloud;

  private List<Caption> shownOthers;

  MainScreen(Activity activity, CaptionViewModel viewModel, Actions asks) {
    this.activity = activity;
    this.viewModel = viewModel;
    notice = new NoticeCard(activity, viewModel::dismissNotice);
    welcome = activity.findViewById(R.id.welcome);
    photoPane = activity.findViewById(R.id.photo_pane);
    photo = activity.findViewById(R.id.photo);
    stripScroll = activity.findViewById(R.id.strip_scroll);
    strip = activity.findViewById(R.id.strip);
    words = activity.findViewById(R.id.words);
    caption = activity.findViewById(R.id.caption);
    sure = activity.findViewById(R.id.sure);
    problem = activity.findViewById(R.id.problem);
    actions = activity.findViewById(R.id.actions);
    retry = activity.findViewById(R.id.retry);
    othersCard = activity.findViewById(R.id.others_card);
    others = activity.findViewById(R.id.others);
    aloud = activity.findViewById(R.id.aloud);

    onClick(R.id.choose, asks::choosePhotos);
    onClick(R.id.take, asks::takePhoto);
    onClick(R.id.speak, viewModel::speak);
    onClick(R.id.retry, viewModel::retry);
    onClick(R.id.copy, () -> asks.copy(Words.of(viewModel.state().selected())));
    onClick(R.id.share, () -> asks.share(Words.of(viewModel.state().selected())));
    aloud.setOnCheckedChangeListener((view, on) -> viewModel.setAloud(on));
  }

  /** Draws a state. What has not changed is left alone, so that a screen reader does not say it again. */
  void show(UiState state) {
    notice.show(state.notice());
    aloud.setChecked(state.aloud());
    Photo selected = state.selected();
    visible(welcome, selected == null);
    visible(photoPane, selected != null);
    visible(words, selected != null);
    if (selected != null) {
      showPhoto(state, selected);
      showStrip(state);
      showWords(selected);
    }
  }

  private void showPhoto(UiState state, Photo selected) {
    photo.setPicture(state.picture() == null ? selected.thumbnail() : state.picture());
    visible(photo, selected.readable() || selected.thumbnail() != null);
    describe(
        photo,
        selected.caption().isEmpty()
            ? activity.getString(R.string.photo_not_described)
            : activity.getString(R.string.photo_described, Words.of(selected)));
  }

  private void showStrip(UiState state) {
    int count = state.photos().size();
    visible(stripScroll, count > 1);
    if (count < 2) {
      strip.removeAllViews();
      return;
    }
    while (strip.getChildCount() > count) {
      strip.removeViewAt(count);
    }
    while (strip.getChildCount() < count) {
      int index = strip.getChildCount();
      View thumbnail = LayoutInflater.from(activity).inflate(R.layout.thumbnail, strip, false);
      thumbnail.setOnClickListener(view -> viewModel.select(index));
      strip.addView(thumbnail);
    }
    for (int i = 0; i < count; i++) {
      Photo each = state.photos().get(i);
      ImageView thumbnail = (ImageView) strip.getChildAt(i);
      thumbnail.setImageBitmap(each.thumbnail());
      thumbnail.setSelected(i == state.selectedIndex());
      describe(
          thumbnail,
          activity.getString(R.string.thumbnail_described, i + 1, count, status(each)));
    }
  }

  private void showWords(Photo selected) {
    boolean captioned = !selected.captions().isEmpty();
    Sentence trouble = selected.problem();
    CharSequence text = captioned ? inItsLanguage(Words.of(selected)) : status(selected);
    setText(caption, captioned || trouble == null ? text : "");
    visible(caption, caption.length() > 0);
    setText(sure, captioned ? Words.sureness(activity, selected.captions().get(0)) : "");
    visible(sure, captioned);
    setText(problem, trouble == null ? "" : trouble.text(activity));
    visible(problem, trouble != null);
    visible(actions, captioned);
    visible(retry, trouble != null);
    showOthers(selected.captions());
  }

  private void showOthers(List<Caption> captions) {
    if (captions.equals(shownOthers)) {
      return;
    }
    shownOthers = captions;
    others.removeAllViews();
    for (Caption each : captions.subList(Math.min(1, captions.size()), captions.size())) {
      View row = LayoutInflater.from(activity).inflate(R.layout.row_caption, others, false);
      setText(row.findViewById(R.id.row_text), inItsLanguage(Words.of(each)));
      setText(row.findViewById(R.id.row_sure), Words.percent(activity, each.confidence()));
      others.addView(row);
    }
    visible(othersCard, captions.size() > 1);
  }

  /** The caption, or in words why there is none. */
  private String status(Photo each) {
    if (!each.captions().isEmpty()) {
      return Words.of(each);
    }
    if (each.problem() != null) {
      return each.problem().text(activity);
    }
    return activity.getString(
        each.id() == viewModel.state().selected().id() ? R.string.looking : R.string.waiting);
  }

  private void onClick(int view, Runnable action) {
    activity.findViewById(view).setOnClickListener(clicked -> action.run());
  }

  /** Marked, so that a screen reader takes the voice that fits. */
  static CharSequence inItsLanguage(String caption) {
    SpannableString marked = new SpannableString(caption);
    marked.setSpan(
        new LocaleSpan(Voice.LANGUAGE), 0, marked.length(), Spanned.SPAN_EXCLUSIVE_EXCLUSIVE);
    return marked;
  }

  static void visible(View view, boolean visible) {
    view.setVisibility(visible ? View.VISIBLE : View.GONE);
  }

  static void setText(TextView view, CharSequence text) {
    if (!view.getText().toString().contentEquals(text)) {
      view.setText(text);
    }
  }

  private static void describe(View view, String description) {
    if (!description.contentEquals(String.valueOf(view.getContentDescription()))) {
      view.setContentDescription(description);
    }
  }
}
