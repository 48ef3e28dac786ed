package org.tfsparsecap.demo;

import android.app.Activity;
import android.graphics.Insets;
import android.os.Build;
import android.view.View;
import android.view.WindowInsets;
import android.widget.Toolbar;

/** Sets up the window and the toolbar of a screen. */
final class WindowSetup {
  private WindowSetup() {}

  /** Pads the root view for system bars, keyboard and cutout; its background still fills the window. */
  static void padForSystemBars(View root) {
    root.setOnApplyWindowInsetsListener(
        (view, insets) -> {
          if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.R) {
            Insets edges =
                insets.getInsets(
                    WindowInsets.Type.systemBars()
                        | WindowInsets.Type.displayCutout()
                        | WindowInsets.Type.ime());
            view.setPadding(edges.left, edges.top, edges.right, edges.bottom);
          } else {
            padBefore11(view, insets);
          }
          return insets;
        });
  }

  @SuppressWarnings("deprecation") // for Android 7 to 10
  private static void padBefore11(View view, WindowInsets insets) {
    view.setPadding(
        insets.getSystemWindowInsetLeft(),
        insets.getSystemWindowInsetTop(),
        insets.getSystemWindowInsetRight(),
        insets.getSystemWindowInsetBottom());
  }

  /** Shows a Back arrow in the toolbar. */
  static void showUpButton(Activity activity, Toolbar toolbar) {
    toolbar.setTitle(activity.getTitle());
    toolbar.setNavigationIcon(R.drawable.ic_back);
    toolbar.setNavigationContentDescription(R.string.back);
    toolbar.setNavigationOnClickListener(clicked -> activity.finish());
  }
}
