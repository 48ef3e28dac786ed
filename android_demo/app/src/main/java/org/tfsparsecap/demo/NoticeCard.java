package org.tfsparsecap.demo;

import android.app.Activity;
import android.view.View;
import android.widget.TextView;

/**
 * A message at the top of a screen until the user dismisses it. Screen readers announce it
 * immediately.
 */
final class NoticeCard {
  private final Activity activity;
  private final View card;
  private final TextView text;

  /** @param dismissed called when the user dismisses the message. */
  NoticeCard(Activity activity, Runnable dismissed) {
    this.activity = activity;
    card = activity.findViewById(R.id.notice);
    text = activity.findViewById(R.id.notice_text);
    activity.findViewById(R.id.notice_done).setOnClickListener(clicked -> dismissed.run());
  }

  /** Shows a message; null hides the card. */
  void show(Message notice) {
    boolean isNew = notice != null && card.getVisibility() != View.VISIBLE;
    MainScreen.setVisible(card, notice != null);
    MainScreen.setText(text, notice == null ? "" : notice.text(activity));
    View scroll = activity.findViewById(R.id.scroll);
    if (isNew) {
      scroll.scrollTo(0, 0); // the card may be above the visible part
    }
  }
}
