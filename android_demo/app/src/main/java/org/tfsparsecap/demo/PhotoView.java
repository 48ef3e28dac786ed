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

/**
 * Shows a whole photo with rounded corners. If its height is not constrained, it takes at most a
 * fraction of the window's height.
 */
public final class PhotoView extends View {
  private static final float DEFAULT_HEIGHT_FRACTION = 0.42f;

  private final float corner;
  private final float share;
  private final Paint paint = new Paint(Paint.ANTI_ALIAS_FLAG | Paint.FILTER_BITMAP_FLAG);
  private final Paint background = new Paint(Paint.ANTI_ALIAS_FLAG);
  private final RectF place = new RectF();
  private Bitmap image;

  /** Called by the layout inflater. */
  public PhotoView(Context context, AttributeSet attributes) {
    super(context, attributes);
    corner = getResources().getDimension(R.dimen.corner_radius);
    background.setColor(context.getColor(R.color.card));
    TypedArray values = context.obtainStyledAttributes(attributes, R.styleable.PhotoView);
    share = values.getFraction(R.styleable.PhotoView_maxHeight, 1, 1, DEFAULT_HEIGHT_FRACTION);
    values.recycle();
  }

  /** Shows an image; null shows an empty area. */
  public void setImage(Bitmap image) {
    if (image != this.image) {
      this.image = image;
      if (image != null) {
        image.setHasMipMap(true); // smoother if the image is drawn much smaller
      }
      paint.setShader(
          image == null
              ? null
              : new BitmapShader(image, Shader.TileMode.CLAMP, Shader.TileMode.CLAMP));
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
    float ratio = image == null ? 0.75f : (float) image.getHeight() / image.getWidth();
    // With large fonts the photo is smaller, so that the caption is visible without scrolling.
    float font = Math.max(1, getResources().getConfiguration().fontScale);
    int max = Math.round(getResources().getDisplayMetrics().heightPixels * share / font);
    int height = Math.min(max, Math.round(width * ratio));
    setMeasuredDimension(width, resolveSize(Math.max(height, getSuggestedMinimumHeight()), heightSpec));
  }

  @Override
  protected void onDraw(Canvas canvas) {
    if (image == null) {
      place.set(0, 0, getWidth(), getHeight());
      canvas.drawRoundRect(place, corner, corner, background);
      return;
    }
    float scale =
        Math.min(
            (float) getWidth() / image.getWidth(), (float) getHeight() / image.getHeight());
    float width = scale * image.getWidth();
    float height = scale * image.getHeight();
    place.set(0, 0, width, height);
    place.offset((getWidth() - width) / 2, (getHeight() - height) / 2);
    Matrix matrix = new Matrix();
    matrix.setScale(scale, scale);
    matrix.postTranslate(place.left, place.top);
    paint.getShader().setLocalMatrix(matrix);
    canvas.drawRoundRect(place, corner, corner, paint);
  }
}
