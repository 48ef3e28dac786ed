package org.tfsparsecap.demo;

import android.content.Context;
import android.content.res.TypedArray;
import android.util.AttributeSet;
import android.view.View;
import android.view.ViewGroup;
import java.util.ArrayList;
import java.util.List;

/**
 * Children side by side, and on the next line where one has no more room: with large fonts buttons go below
 * each other and are not cut off. Right-to-left where the language is.
 */
public final class WrapLayout extends ViewGroup {
  private final int gap;
  private final boolean fill;

  /** Made from a layout file; {@code fill} shares out a line among its children. */
  public WrapLayout(Context context, AttributeSet attributes) {
    super(context, attributes);
    gap = getResources().getDimensionPixelSize(R.dimen.gap);
    TypedArray values = context.obtainStyledAttributes(attributes, R.styleable.WrapLayout);
    fill = values.getBoolean(R.styleable.WrapLayout_fill, false);
    values.recycle();
  }

  @Override
  protected void onMeasure(int widthSpec, int heightSpec) {
    int width = MeasureSpec.getSize(widthSpec) - getPaddingStart() - getPaddingEnd();
    for (View child : children()) {
      int widest = MeasureSpec.makeMeasureSpec(width, MeasureSpec.AT_MOST);
      child.measure(widest, MeasureSpec.makeMeasureSpec(0, MeasureSpec.UNSPECIFIED));
    }
    int height = 0;
    int usedWidth = 0;
    for (List<View> line : lines(width)) {
      int share = (width - gap * (line.size() - 1)) / line.size();
      if (fill && widest(line) <= share) {
        for (View child : line) {
          measureAgain(child, share);
        }
      } else if (fill && line.size() == 1) {
        measureAgain(line.get(0), width);
      }
      height += (height == 0 ? 0 : gap) + highest(line);
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
      int height = highest(line);
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

  private static int widest(List<View> line) {
    int widest = 0;
    for (View child : line) {
      widest = Math.max(widest, child.getMeasuredWidth());
    }
    return widest;
  }

  private static int highest(List<View> line) {
    int highest = 0;
    for (View child : line) {
      highest = Math.max(highest, child.getMeasuredHeight());
    }
    return highest;
  }
}
