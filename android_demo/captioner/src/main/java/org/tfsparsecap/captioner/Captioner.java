package org.tfsparsecap.captioner;

import android.graphics.Bitmap;
import android.os.CancellationSignal;
import android.os.OperationCanceledException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.tensorflow.lite.DataType;
import org.tensorflow.lite.Interpreter;
import org.tensorflow.lite.Tensor;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * Captions images.
 *
 * <p>Captioning takes from milliseconds to seconds, so call it off the main thread, or use {@link
 * AsyncCaptioner}. The class is thread-safe: concurrent calls, including {@link #close()}, run one
 * after another.
 *
 * <pre>{@code
 * try (Captioner captioner = new Captioner(bundle, 2)) {
 *   Bitmap photo = PhotoReader.read(resolver, uri, bundle.description().imageSize());
 *   Caption best = captioner.caption(photo).captions().get(0);
 * }
 * }</pre>
 */
public final class Captioner implements AutoCloseable {
  /** Objects with at least this probability count as being in the image. */
  public static final float LIKELY = 0.5f;

  private static final String SIGNATURE = "caption";
  private static final String IMAGE = "image";
  private static final String TOKEN_IDS = "token_ids";
  private static final String SCORES = "scores";
  private static final String OBJECTS = "objects";
  /**
   * Beams without a caption have probability zero. The runtime's kernels return its logarithm as
   * minus infinity or, for constants of converted graphs, as the lowest float.
   */
  private static final float NO_CAPTION_SCORE = -1e30f;

  private final CaptionerBundle bundle;
  private final CaptionDecoder text;
  private final int side;
  private final ByteBuffer pixels;
  /** Null after {@link #close()}. */
  private Interpreter interpreter;

  /**
   * Loads the bundle into the runtime; takes milliseconds to seconds.
   *
   * @param bundle the captioner to run.
   * @param threads number of CPU threads, at least 1.
   * @throws BundleException the runtime cannot run the bundle, or the graph does not match its
   *     description.
   */
  public Captioner(CaptionerBundle bundle, int threads) throws BundleException {
    if (threads < 1) {
      throw new IllegalArgumentException("threads is " + threads + ": give at least 1");
    }
    this.bundle = bundle;
    text = new CaptionDecoder(bundle);
    side = bundle.description().imageSize();
    // Allocated first: if this fails, no interpreter has to be closed.
    pixels = ByteBuffer.allocateDirect(3 * side * side).order(ByteOrder.nativeOrder());
    interpreter = interpreter(bundle, threads);
    try {
      checkSignature();
      interpreter.allocateTensors();
    } catch (IllegalArgumentException | IllegalStateException error) {
      close();
      throw notRunnable(error);
    } catch (BundleException error) {
      close();
      throw error;
    }
  }

  private static Interpreter interpreter(CaptionerBundle bundle, int threads) throws BundleException {
    try {
      return new Interpreter(
          bundle.model(), new Interpreter.Options().setNumThreads(threads).setCancellable(true));
    } catch (IllegalArgumentException | IllegalStateException | LinkageError error) {
      // LinkageError: the app has no native library for this processor.
      throw notRunnable(error);
    }
  }

  private void checkSignature() throws BundleException {
    if (!Arrays.asList(interpreter.getSignatureKeys()).contains(SIGNATURE)) {
      throw new BundleException(Reason.DAMAGED, "the graph has no signature " + SIGNATURE);
    }
    List<String> inputs = Arrays.asList(interpreter.getSignatureInputs(SIGNATURE));
    if (inputs.contains("features")) {
      throw new BundleException(Reason.TAKES_FEATURES, "the graph takes " + inputs);
    }
    if (!inputs.equals(Collections.singletonList(IMAGE))) {
      throw new BundleException(Reason.DAMAGED, "the graph takes " + inputs + ", not an image alone");
    }
    Tensor image = interpreter.getInputTensorFromSignature(IMAGE, SIGNATURE);
    int[] shape = {1, side, side, 3};
    if (image.dataType() != DataType.UINT8 || !Arrays.equals(image.shape(), shape)) {
      throw new BundleException(
          Reason.DAMAGED,
          "the graph takes " + image.dataType() + Arrays.toString(image.shape()) + ", its description says UINT8"
              + Arrays.toString(shape));
    }
    List<String> needed = new ArrayList<>(Arrays.asList(TOKEN_IDS, SCORES));
    if (!bundle.description().objects().isEmpty()) {
      needed.add(OBJECTS);
    }
    List<String> outputs = Arrays.asList(interpreter.getSignatureOutputs(SIGNATURE));
    if (!outputs.containsAll(needed)) {
      throw new BundleException(Reason.DAMAGED, "the graph returns " + outputs + ", not " + needed);
    }
  }

  /**
   * Captions an image.
   *
   * @param upright any size, any config. It is resized as in training, with a white background
   *     behind transparent pixels. It is neither changed nor kept.
   * @return the captions, best first, and the likely objects.
   * @throws BundleException the model fails on this image, or returns tokens that are not in the
   *     vocabulary.
   * @throws IllegalStateException this captioner is closed.
   */
  public CaptioningResult caption(Bitmap upright) throws BundleException {
    return caption(upright, new CancellationSignal());
  }

  /**
   * Captions an image, unless another thread cancels it.
   *
   * @param upright as above.
   * @param cancellation cancels this call: it ends after the operation of the graph that is running,
   *     usually within milliseconds. Each call needs its own.
   * @return the captions, best first, and the likely objects.
   * @throws BundleException the model fails on this image, or returns tokens that are not in the
   *     vocabulary.
   * @throws OperationCanceledException the call was cancelled. The captioner can be used again.
   * @throws IllegalStateException this captioner is closed.
   */
  public synchronized CaptioningResult caption(Bitmap upright, CancellationSignal cancellation)
      throws BundleException {
    if (interpreter == null) {
      throw new IllegalStateException("this captioner is closed");
    }
    cancellation.throwIfCanceled();
    long start = System.nanoTime();
    pixels.clear();
    PillowScaler.scale(upright, side, pixels);
    pixels.clear();
    long scaled = System.nanoTime();
    run(cancellation);
    long run = System.nanoTime();
    float[] probabilities = probabilities();
    List<Caption> captions = captions(probabilities);
    return new CaptioningResult(captions, likely(probabilities), (run - scaled) / 1e6f, (System.nanoTime() - start) / 1e6f);
  }

  private void run(CancellationSignal cancellation) throws BundleException {
    Map<String, Object> inputs = Collections.singletonMap(IMAGE, pixels);
    Interpreter running = interpreter;
    cancellation.setOnCancelListener(() -> running.setCancelled(true));
    try {
      // Outputs are read from their tensors, because some graphs determine output shapes only when
      // they run.
      running.runSignature(inputs, new HashMap<>(), SIGNATURE);
    } catch (IllegalArgumentException | IllegalStateException error) {
      if (cancellation.isCanceled()) {
        throw new OperationCanceledException("the caption was cancelled");
      }
      throw notRunnable(error);
    } finally {
      cancellation.setOnCancelListener(null); // waits for a listener that is being called
      running.setCancelled(false);
    }
  }

  private List<Caption> captions(float[] probabilities) throws BundleException {
    Tensor ids = interpreter.getOutputTensorFromSignature(TOKEN_IDS, SIGNATURE);
    Tensor sums = interpreter.getOutputTensorFromSignature(SCORES, SIGNATURE);
    int[] shape = ids.shape();
    if (ids.dataType() != DataType.INT32
        || sums.dataType() != DataType.FLOAT32
        || shape.length != 2
        || sums.numElements() != shape[0]) {
      throw new BundleException(
          Reason.DAMAGED,
          "the graph returned " + ids.dataType() + Arrays.toString(shape) + " and " + sums.dataType()
              + Arrays.toString(sums.shape()) + ", not tokens and scores of captions");
    }
    IntBuffer tokens = ids.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asIntBuffer();
    FloatBuffer scores = sums.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer();
    List<Caption> captions = new ArrayList<>();
    int[] row = new int[shape[1]];
    for (int beam = 0; beam < shape[0]; beam++) {
      tokens.get(row);
      float score = scores.get(beam);
      if (score > NO_CAPTION_SCORE && !Float.isInfinite(score)) {
        captions.add(text.caption(row, score, probabilities));
      }
    }
    return captions;
  }

  /** Probabilities of the objects; none for a bundle without objects. */
  private float[] probabilities() throws BundleException {
    float[] probabilities = new float[bundle.description().objects().size()];
    if (probabilities.length == 0) {
      return probabilities;
    }
    Tensor found = interpreter.getOutputTensorFromSignature(OBJECTS, SIGNATURE);
    if (found.dataType() == DataType.FLOAT32 && found.numElements() == probabilities.length) {
      found.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer().get(probabilities);
    } else {
      probabilities[0] = Float.NaN;
    }
    for (float probability : probabilities) {
      if (!(probability >= 0 && probability <= 1)) {
        throw new BundleException(
            Reason.DAMAGED, "the graph returned no probability for each of " + probabilities.length + " objects");
      }
    }
    return probabilities;
  }

  private List<String> likely(float[] probabilities) {
    List<Integer> likely = new ArrayList<>();
    for (int i = 0; i < probabilities.length; i++) {
      if (probabilities[i] >= LIKELY) {
        likely.add(i);
      }
    }
    likely.sort((one, other) -> Float.compare(probabilities[other], probabilities[one]));
    List<String> objects = new ArrayList<>();
    for (int i : likely) {
      objects.add(bundle.description().objects().get(i));
    }
    return objects;
  }

  /** The bundle that this captioner runs. */
  public CaptionerBundle bundle() {
    return bundle;
  }

  /** Frees the native memory, after the caption in progress. May be called more than once. */
  @Override
  public synchronized void close() {
    if (interpreter != null) {
      interpreter.close();
      interpreter = null;
    }
  }

  private static BundleException notRunnable(Throwable error) {
    return new BundleException(Reason.NOT_RUNNABLE, "the runtime rejects the model: " + error.getMessage(), error);
  }
}
