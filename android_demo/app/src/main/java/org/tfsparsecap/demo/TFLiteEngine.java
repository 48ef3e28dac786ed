package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import org.tfsparsecap.captioner.AsyncCaptioner;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Captioner;
import org.tfsparsecap.captioner.CaptionerBundle;
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;
import org.tfsparsecap.captioner.PhotoReader;

/** The engine that uses TensorFlow Lite. */
final class TFLiteEngine implements Engine {
  private final Context context;
  // Only one photo at a time: concurrent captions would slow each other down and distort the latency.
  private final Object rotate = new Object();

  TFLiteEngine(Context context) {
    this.context = context.getApplicationContext();
  }

  @Override
  public Model openBuiltIn(ModelChoice choice) throws BundleException, IOException {
    return new TFLiteModel(CaptionerBundle.fromAsset(context.getAssets(), choice.fileName()));
  }

  @Override
  public Model open(File bundle) throws BundleException, IOException {
    return new TFLiteModel(CaptionerBundle.fromFile(bundle));
  }

  @Override
  public Bitmap read(Uri photo, int side) throws PhotoException {
    return PhotoReader.read(context.getContentResolver(), photo, side);
  }

  private final class TFLiteModel implements Model {
    private final Captioner captioner;
    private final ModelInfo info;
    /** Null until a caption in the background is wanted. */
    private volatile AsyncCaptioner background;

    TFLiteModel(CaptionerBundle bundle) throws BundleException {
      // Half of the cores: a phone's small cores slow down its large ones.
      int threads = Math.max(1, Math.min(4, Runtime.getRuntime().availableProcessors() / 2));
      captioner = new Captioner(bundle, threads);
      info = ModelInfo.of(bundle);
    }

    @Override
    public ModelInfo info() {
      return info;
    }

    @Override
    public CaptioningResult caption(Bitmap image) throws BundleException {
      synchronized (rotate) {
        return captioner.caption(image);
      }
    }

    @Override
    public CompletableFuture<CaptioningResult> submit(Bitmap image) {
      if (background == null) {
        background = new AsyncCaptioner(() -> captioner);
      }
      return background.caption(image);
    }

    @Override
    public void close() {
      if (background != null) {
        background.close();
      }
      captioner.close();
    }
  }
}
