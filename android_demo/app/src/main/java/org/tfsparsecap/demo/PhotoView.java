package org.tfsparsecap.demo;

import android.content.Context;
import android.content.res.TypedArray;
import android.graphics.Bitmap;
import android.graphics.BitmapShader;
import android.graphics.Canvas;
import android.graphics.Matrix;
import android.graphics.Paint;
import android.graphics.RectF;
import android.graphics.Shader;
import android.util.AttributeSet;
import android.view.View;
import android.widget.ImageView;

/** A photo, whole, with round corners. Where its height is free it takes a part of the window's at most. */
public final class PhotoView extends View {
  private static final float PART_OF_WINDOW = 0.42f;

  private final float corner;
  private final float share;
  private final Paint paint = new Paint(Paint.ANTI_ALIAS_FLAG | Paint.FILTER_BITMAP_FLAG);
  private final Paint ground = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final RectF place = new RectF();
  private Bitmap picture;

  /** Made from a layout file. */
  public PhotoView(Context context, AttributeSet attributes) {
    super(context, attributes);
    corner = getResources().getDimension(R.dimen.corner);
    ground.setColor(context.getColor(R.color.card));
    TypedArray values = context.obtainStyledAttributes(attributes, R.styleable.PhotoView);
    share = values.getFraction(R.styleable.PhotoView_part, 1, 1, PART_OF_WINDOW);
    values.recycle();
  }

  /** Shows a picture, or an empty place for null. */
  public void setPicture(Bitmap picture) {
    if (picture != this.picture) {
      this.picture = picture;
      if (picture != null) {
        picture.setHasMipMap(true); // smooth where it is drawn much smaller than it is
      }
      paint.setShader(
          picture == null
              ? null
              : new BitmapShader(picture, Shader.TileMode.CLAMP, Shader.TileMode.CLAMP));
      requestLayout();
      invalidate();
    }
  }

  @Override
  public CharSequence getAccessibilityClassName() {
    return ImageView.class.getName();
  }

  @Override
  protected void onMeasure(int widthSpec, int heightSpec) {
    int width = MeasureSpec.getSize(widthSpec);
    float ratio = picture == null ? 0.75f : (float) picture.getHeight() / picture.getWidth();
    // Large fonts need the room: the caption should be seen without scrolling.
    float font = Math.max(1, getResources().getConfiguration().fontScale);
    int most = Math.round(getResources().getDisplayMetrics().heightPixels * share / font);
    int height = Math.min(most, Math.round(width * ratio));
    setMeasuredDimension(width, resolveSize(Math.max(height, getSuggestedMinimumHeight()), heightSpec));
  }

  @Override
  protected void onDraw(Canvas canvas) {
    if (picture == null) {
      place.set(0, 0, getWidth(), getHeight());
      canvas.drawRoundRect(place, corner, corner, ground);
      return;
    }
    float scale =
        Math.min(
            (float) getWidth() / picture.getWidth(), (float) getHeight() / picture.getHeight());
    float width = scale * picture.getWidth();
    float height = scale * picture.getHeight();
    place.set(0, 0, width, height);
    place.offset((getWidth() - width) / 2, (getHeight() - height) / 2);
    Matrix matrix = new Matrix();
    matrix.setScale(scale, scale);
    matrix.postTranslate(place.left, place.top);
    paint.getShader().setLocalMatrix(matrix);
    canvas.drawRoundRect(place, corner, corner, paint);
  }
}
