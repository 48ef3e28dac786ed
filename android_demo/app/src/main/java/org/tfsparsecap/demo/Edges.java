package org.tfsparsecap.demo;

import android.graphics.Insets;
import android.os.Build;
import android.view.View;
import android.view.WindowInsets;

/** Keeps what matters away from the bars of the system, the keyboard and the camera's cut-out. */
final class Edges {
  private Edges() {}

  /** Pads a window's outermost view, whose background still goes to the edges. */
  static void keepFree(View root) {
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

  @SuppressWarnings("deprecation") // Android 7 to 10 know nothing else
  private static void padBefore11(View view, WindowInsets insets) {
    view.setPadding(
        insets.getSystemWindowInsetLeft(),
        insets.getSystemWindowInsetTop(),
        insets.getSystemWindowInsetRight(),
        insets.getSystemWindowInsetBottom());
  }
}
