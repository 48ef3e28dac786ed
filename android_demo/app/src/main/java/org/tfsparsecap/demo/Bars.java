package org.tfsparsecap.demo;

import android.app.Activity;
import android.widget.Toolbar;

/** The bar on top of a screen. */
final class Bars {
  private Bars() {}

  /** With an arrow that leads back. */
  static void withWayBack(Activity activity, Toolbar bar) {
    bar.setTitle(activity.getTitle());
    bar.setNavigationIcon(R.drawable.ic_back);
    bar.setNavigationContentDescription(R.string.back);
    bar.setNavigationOnClickListener(clicked -> activity.finish());
  }
}
