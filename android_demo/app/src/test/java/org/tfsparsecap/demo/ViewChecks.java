package org.tfsparsecap.demo;

import android.app.Activity;
import android.content.res.Resources;
import android.graphics.Color;
import android.graphics.drawable.ColorDrawable;
import android.graphics.drawable.Drawable;
import android.graphics.drawable.GradientDrawable;
import android.graphics.drawable.RippleDrawable;
import android.text.Layout;
import android.view.View;
import android.view.ViewGroup;
import android.view.ViewParent;
import android.widget.HorizontalScrollView;
import android.widget.ImageView;
import android.widget.ScrollView;
import android.widget.TextView;
import java.util.List;

/** Finds violations of accessibility guidelines. */
final class ViewChecks {
  private static final float MIN_TOUCH_TARGET_DP = 48;
  // WCAG 2, level AA.
  private static final double MIN_CONTRAST = 4.5;

  private final String screen;
  private final Activity activity;
  private final List<String> found;

  ViewChecks(String screen, Activity activity, List<String> found) {
    this.screen = screen;
    this.activity = activity;
    this.found = found;
  }

  /** Number of clickable views. */
  static int clickable(View view) {
    int count = view.isClickable() && view.isShown() ? 1 : 0;
    if (view instanceof ViewGroup) {
      for (int i = 0; i < ((ViewGroup) view).getChildCount(); i++) {
        count += clickable(((ViewGroup) view).getChildAt(i));
      }
    }
    return count;
  }

  void check(View view) {
    if (!view.isShown()) {
      return;
    }
    if (view.isClickable()) {
      checkTarget(view);
    }
    if (view instanceof ImageView || view instanceof PhotoView) {
      boolean ignored = view.getImportantForAccessibility() == View.IMPORTANT_FOR_ACCESSIBILITY_NO;
      if (!ignored && !isLabelled(view)) {
        report(view, "is an image without a description");
      }
    }
    if (view instanceof TextView && ((TextView) view).getText().length() > 0) {
      checkText((TextView) view);
    }
    checkPlace(view);
    if (view instanceof ViewGroup) {
      for (int i = 0; i < ((ViewGroup) view).getChildCount(); i++) {
        check(((ViewGroup) view).getChildAt(i));
      }
    }
  }

  private void checkTarget(View view) {
    float density = activity.getResources().getDisplayMetrics().density;
    float width = view.getWidth() / density;
    float height = view.getHeight() / density;
    if (width < MIN_TOUCH_TARGET_DP - 0.5f || height < MIN_TOUCH_TARGET_DP - 0.5f) {
      report(view, "is too small to touch: " + width + " x " + height + " dp");
    }
    if (!isLabelled(view)) {
      report(view, "is clickable and has no label");
    }
  }

  private static boolean isLabelled(View view) {
    boolean described = view.getContentDescription() != null && view.getContentDescription().length() > 0;
    boolean written = view instanceof TextView && ((TextView) view).getText().length() > 0;
    return described || written;
  }

  private void checkText(TextView view) {
    Layout layout = view.getLayout();
    if (layout == null) {
      report(view, "has no layout");
      return;
    }
    for (int line = 0; line < layout.getLineCount(); line++) {
      if (layout.getEllipsisCount(line) > 0) {
        report(view, "is truncated: " + view.getText());
      }
      int available = view.getWidth() - view.getCompoundPaddingLeft() - view.getCompoundPaddingRight();
      // A word longer than the line overflows; trailing spaces do not matter.
      if (layout.getLineMax(line) > available + 1) {
        report(view, "is wider than its view: " + view.getText());
      }
    }
    int available =
        view.getHeight() - view.getCompoundPaddingTop() - view.getCompoundPaddingBottom();
    if (layout.getHeight() > available + 1) {
      report(view, "is taller than its view: " + view.getText());
    }
    Integer background = background(view);
    if (background == null) {
      report(view, "has no background colour");
    } else if (contrast(view.getCurrentTextColor(), background) < MIN_CONTRAST) {
      report(view, "has a contrast of " + contrast(view.getCurrentTextColor(), background));
    }
  }

  private void checkPlace(View view) {
    ViewParent parent = view.getParent();
    boolean scrolls = parent instanceof ScrollView || parent instanceof HorizontalScrollView;
    if (!(parent instanceof View) || scrolls) {
      return;
    }
    View around = (View) parent;
    if (view.getLeft() < 0 || view.getRight() > around.getWidth()) {
      report(view, "overflows horizontally");
    }
    if (view.getTop() < 0 || view.getBottom() > around.getHeight()) {
      report(view, "overflows vertically");
    }
  }

  /** The background colour behind a view's text; null if there is none. */
  private static Integer background(View view) {
    for (Object each = view; each instanceof View; each = ((View) each).getParent()) {
      Integer colour = colour(((View) each).getBackground());
      if (colour != null && Color.alpha(colour) == 255) {
        return colour;
      }
    }
    return null;
  }

  private static Integer colour(Drawable drawable) {
    if (drawable instanceof ColorDrawable) {
      return ((ColorDrawable) drawable).getColor();
    }
    if (drawable instanceof RippleDrawable) {
      RippleDrawable ripple = (RippleDrawable) drawable;
      boolean filled = ripple.getNumberOfLayers() > 0 && ripple.getId(0) != android.R.id.mask;
      return filled ? colour(ripple.getDrawable(0)) : null;
    }
    if (drawable instanceof GradientDrawable && ((GradientDrawable) drawable).getColor() != null) {
      return ((GradientDrawable) drawable).getColor().getDefaultColor();
    }
    return null;
  }

  private static double contrast(int one, int other) {
    double light = Math.max(Color.luminance(one), Color.luminance(other));
    double dark = Math.min(Color.luminance(one), Color.luminance(other));
    return (light + 0.05) / (dark + 0.05);
  }

  private void report(View view, String what) {
    String name;
    try {
      name = activity.getResources().getResourceEntryName(view.getId());
    } catch (Resources.NotFoundException unnamed) {
      name = view.getClass().getSimpleName();
    }
    found.add(screen + ": " + name + " " + what);
  }
}
