package org.tfsparsecap.demo;

import android.app.Activity;
import android.view.View;
import android.widget.TextView;

/** A sentence on top of a screen, until the person has read it. A screen reader says it at once. */
final class NoticeCard {
  private final Activity activity;
  private final View card;
  private final TextView text;

  /** @param dismissed is run when the person has read it. */
  NoticeCard(Activity activity, Runnable dismissed) {
    this.activity = activity;
    card = activity.findViewById(R.id.notice);
    text = activity.findViewById(R.id.notice_text);
    activity.findViewById(R.id.notice_done).setOnClickListener(clicked -> dismissed.run());
  }

  /** Shows a sentence, or nothing for null. */
  void show(Sentence notice) {
    boolean isNew = notice != null && card.getVisibility() != View.VISIBLE;
    MainScreen.visible(card, notice != null);
    MainScreen.setText(text, notice == null ? "" : notice.text(activity));
    View scroll = activity.findViewById(R.id.scroll);
    if (isNew) {
      scroll.scrollTo(0, 0); // the card is above what the person may have scrolled to
    }
  }
}
