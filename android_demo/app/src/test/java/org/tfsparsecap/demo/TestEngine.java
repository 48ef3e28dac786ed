package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.CaptioningResult;
import org.tfsparsecap.captioner.PhotoException;

/** The real engine with small models; counts calls, and blocks or fails on request. */
final class TestEngine implements Engine {
  /** The captioned photos in order, by the last segment of their URIs. */
  final List<String> captioned = Collections.synchronizedList(new ArrayList<>());
  /** Files that replace the built-in models. */
  final Map<ModelChoice, File> builtIn = new EnumMap<>(ModelChoice.class);
  /** Thrown by the next caption. */
  volatile Throwable failure;
  /** False hides the measured latencies. */
  volatile boolean reportTimes = true;
  /** Whether the model finds no captions. */
  volatile boolean noCaptions;
  /** Whether the model finds no objects. */
  volatile boolean noObjects;
  /** Number of camera frames, and the result of the last one. */
  volatile int frames;

  volatile CompletableFuture<CaptioningResult> lastFrame;
  volatile int opened;
  volatile int closed;

  private final TFLiteEngine real;
  private volatile Semaphore gate;
  private volatile String lastImage = "";

  TestEngine(Context context) {
    real = new TFLiteEngine(new android.content.ContextWrapper(context) {
      @Override
      public Context getApplicationContext() {
        return getBaseContext();
      }
    });
    builtIn.put(ModelChoice.SPARSE, SamplePhotos.model("shapes_sparse"));
    builtIn.put(ModelChoice.DENSE, SamplePhotos.model("shapes_dense"));
  }

  /** Blocks captions until they are released. */
  void block() {
    gate = new Semaphore(0);
  }

  /** Releases this number of captions. */
  void release(int images) {
    gate.release(images);
  }

  @Override
  public Model openBuiltIn(ModelChoice choice) throws BundleException, IOException {
    return open(builtIn.get(choice));
  }

  @Override
  public Model open(File bundle) throws BundleException, IOException {
    Model model = real.open(bundle);
    opened++;
    return new Model() {
      private Bitmap repeated;
      private CaptioningResult result;

      @Override
      public ModelInfo info() {
        return model.info();
      }

      @Override
      public CaptioningResult caption(Bitmap image) throws BundleException {
        if (gate != null) {
          gate.acquireUninterruptibly();
        }
        captioned.add(lastImage);
        Throwable thrown = failure;
        failure = null;
        if (thrown instanceof Error) {
          throw (Error) thrown;
        } else if (thrown instanceof BundleException) {
          throw (BundleException) thrown;
        } else if (thrown != null) {
          throw (RuntimeException) thrown;
        }
        // The same image has the same captions; the models screen asks for them eleven times.
        if (image != repeated) {
          result = model.caption(image);
          repeated = image;
        }
        CaptioningResult captioning = result;
        return new CaptioningResult(
            noCaptions ? Collections.emptyList() : captioning.captions(),
            noObjects ? Collections.emptyList() : captioning.objects(),
            reportTimes ? captioning.runMilliseconds() : Float.NaN,
            captioning.totalMilliseconds());
      }

      @Override
      public CompletableFuture<CaptioningResult> submit(Bitmap image) {
        frames++;
        Throwable thrown = failure;
        failure = null;
        lastFrame = gate == null && thrown == null ? model.submit(image) : new CompletableFuture<>();
        if (thrown != null) {
          lastFrame.completeExceptionally(thrown);
        }
        return lastFrame;
      }

      @Override
      public void close() {
        closed++;
        model.close();
      }
    };
  }

  @Override
  public Bitmap read(Uri photo, int side) throws PhotoException {
    lastImage = photo.getLastPathSegment();
    return real.read(photo, side);
  }
}
