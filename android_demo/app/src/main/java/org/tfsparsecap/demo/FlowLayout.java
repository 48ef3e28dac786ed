package org.tfsparsecap.demo;

import android.content.Context;
import android.content.res.TypedArray;
import android.util.AttributeSet;
import android.view.View;
import android.view.ViewGroup;
import java.util.ArrayList;
import java.util.List;

/**
 * Places children side by side and wraps to the next line where the space ends, so that buttons are
 * not cut off with large fonts. Supports right-to-left languages.
 */
public final class FlowLayout extends ViewGroup {
  private final int gap;
  private final boolean fill;

  /**
   * Called by the layout inflater; with {@code fill} the children of a line share its whole width.
   */
  public FlowLayout(Context context, AttributeSet attributes) {
    super(context, attributes);
    gap = getResources().getDimensionPixelSize(R.dimen.spacing);
    TypedArray values = context.obtainStyledAttributes(attributes, R.styleable.FlowLayout);
    fill = values.getBoolean(R.styleable.FlowLayout_fill, false);
    values.recycle();
  }

  @Override
  protected void onMeasure(int widthSpec, int heightSpec) {
    int width = MeasureSpec.getSize(widthSpec) - getPaddingStart() - getPaddingEnd();
    for (View child : children()) {
      int maxWidth = MeasureSpec.makeMeasureSpec(width, MeasureSpec.AT_MOST);
      child.measure(maxWidth, MeasureSpec.makeMeasureSpec(0, MeasureSpec.UNSPECIFIED));
    }
    int height = 0;
    int usedWidth = 0;
    for (List<View> line : lines(width)) {
      int share = (width - gap * (line.size() - 1)) / line.size();
      if (fill && maxWidth(line) <= share) {
        for (View child : line) {
          measureAgain(child, share);
        }
      } else if (fill && line.size() == 1) {
        measureAgain(line.get(0), width);
      }
      height += (height == 0 ? 0 : gap) + maxHeight(line);
      usedWidth = Math.max(usedWidth, length(line));
    }
    setMeasuredDimension(
        resolveSize(usedWidth + getPaddingStart() + getPaddingEnd(), widthSpec),
        resolveSize(height + getPaddingTop() + getPaddingBottom(), heightSpec));
  }

  @Override
  protected void onLayout(boolean changed, int left, int top, int right, int bottom) {
    boolean mirrored = getLayoutDirection() == LAYOUT_DIRECTION_RTL;
    int y = getPaddingTop();
    for (List<View> line : lines(getWidth() - getPaddingStart() - getPaddingEnd())) {
      int x = getPaddingStart();
      int height = maxHeight(line);
      for (View child : line) {
        int width = child.getMeasuredWidth();
        int childLeft = mirrored ? getWidth() - x - width : x;
        int childTop = y + (height - child.getMeasuredHeight()) / 2;
        child.layout(childLeft, childTop, childLeft + width, childTop + child.getMeasuredHeight());
        x += width + gap;
      }
      y += height + gap;
    }
  }

  private static void measureAgain(View child, int width) {
    child.measure(
        MeasureSpec.makeMeasureSpec(width, MeasureSpec.EXACTLY),
        MeasureSpec.makeMeasureSpec(0, MeasureSpec.UNSPECIFIED));
  }

  private List<List<View>> lines(int width) {
    List<List<View>> lines = new ArrayList<>();
    List<View> line = new ArrayList<>();
    int length = 0;
    for (View child : children()) {
      if (!line.isEmpty() && length + gap + child.getMeasuredWidth() > width) {
        lines.add(line);
        line = new ArrayList<>();
        length = 0;
      }
      length += (line.isEmpty() ? 0 : gap) + child.getMeasuredWidth();
      line.add(child);
    }
    if (!line.isEmpty()) {
      lines.add(line);
    }
    return lines;
  }

  private List<View> children() {
    List<View> children = new ArrayList<>();
    for (int i = 0; i < getChildCount(); i++) {
      if (getChildAt(i).getVisibility() != GONE) {
        children.add(getChildAt(i));
      }
    }
    return children;
  }

  private int length(List<View> line) {
    int length = gap * (line.size() - 1);
    for (View child : line) {
      length += child.getMeasuredWidth();
    }
    return length;
  }

  private static int maxWidth(List<View> line) {
    int maxWidth = 0;
    for (View child : line) {
      maxWidth = Math.max(maxWidth, child.getMeasuredWidth());
    }
    return maxWidth;
  }

  private static int maxHeight(List<View> line) {
    int maxHeight = 0;
    for (View child : line) {
      maxHeight = Math.max(maxHeight, child.getMeasuredHeight());
    }
    return maxHeight;
  }
}
