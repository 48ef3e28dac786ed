package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
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
  // Only one caption at a time: concurrent ones would slow each other down and distort the latency.
  private final Object rotate = new Object();
  private final Executor thread = Executors.newSingleThreadExecutor(work -> new Thread(work, "captioner"));

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

  private void runInTurn(Runnable work) {
    thread.execute(
        () -> {
          synchronized (rotate) {
            work.run();
          }
        });
  }

  private final class TFLiteModel implements Model {
    private final Captioner captioner;
    private final AsyncCaptioner background;
    private final ModelInfo info;

    TFLiteModel(CaptionerBundle bundle) throws BundleException {
      // Half of the cores: a phone's small cores slow down its large ones.
      int threads = Math.max(1, Math.min(4, Runtime.getRuntime().availableProcessors() / 2));
      captioner = new Captioner(bundle, threads);
      background = new AsyncCaptioner(() -> captioner, TFLiteEngine.this::runInTurn);
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
      return background.caption(image);
    }

    @Override
    public void close() {
      background.close();
      captioner.close();
    }
  }
}
