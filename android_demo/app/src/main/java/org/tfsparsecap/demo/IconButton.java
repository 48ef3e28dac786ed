package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Canvas;
import android.text.Layout;
import android.util.AttributeSet;
import android.view.Gravity;
import android.widget.Button;

/** A button that centres its icon and text together, even if it is wider than both. */
public final class IconButton extends Button {
  /** Called by the layout inflater. */
  public IconButton(Context context, AttributeSet attributes) {
    super(context, attributes);
    setGravity(Gravity.START | Gravity.CENTER_VERTICAL);
    setTextAlignment(TEXT_ALIGNMENT_VIEW_START);
  }

  @Override
  protected void onDraw(Canvas canvas) {
    float free = getWidth() - getCompoundPaddingLeft() - getCompoundPaddingRight() - textWidth();
    boolean mirrored = getLayoutDirection() == LAYOUT_DIRECTION_RTL;
    canvas.save();
    canvas.translate(Math.max(0, free) / 2 * (mirrored ? -1 : 1), 0);
    super.onDraw(canvas);
    canvas.restore();
  }

  private float textWidth() {
    Layout text = getLayout();
    float width = 0;
    for (int line = 0; text != null && line < text.getLineCount(); line++) {
      width = Math.max(width, text.getLineWidth(line));
    }
    return width;
  }
}
