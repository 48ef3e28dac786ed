package org.tfsparsecap.demo;

import android.content.Context;
import android.text.TextUtils;
import android.util.Log;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.PhotoException;

/** One or more sentences for the user, translated when they are shown. Immutable. */
final class Message {
  private static final String TAG = "Message";

  // Each part: the name of a Problem and its arguments.
  private final List<List<String>> parts;

  private Message(List<List<String>> parts) {
    this.parts = Collections.unmodifiableList(parts);
  }

  /** Creates a message with the arguments that the constant documents. */
  static Message of(Problem problem, String... details) {
    List<String> part = new ArrayList<>();
    part.add(problem.name());
    part.addAll(Arrays.asList(details));
    return new Message(Collections.singletonList(part));
  }

  /** Creates the message for an exception. Unexpected ones are logged with their stack trace. */
  static Message of(Throwable thrown) {
    if (thrown instanceof PhotoException) {
      return of(Problem.valueOf("PHOTO_" + ((PhotoException) thrown).reason().name()));
    }
    if (thrown instanceof LinkageError || thrown.getCause() instanceof LinkageError) {
      Log.e(TAG, "TensorFlow Lite does not run", thrown);
      return of(Problem.NO_RUNTIME); // the captioner reports it as NOT_RUNNABLE
    }
    if (thrown instanceof BundleException) {
      Log.w(TAG, thrown);
      return of(Problem.valueOf("MODEL_" + ((BundleException) thrown).reason().name()));
    }
    if (thrown instanceof InsufficientStorageException) {
      InsufficientStorageException insufficientStorage = (InsufficientStorageException) thrown;
      return insufficientStorage.needed() == null
          ? of(Problem.MODEL_NO_STORAGE_SIZE_UNKNOWN, insufficientStorage.free())
          : of(Problem.MODEL_NO_STORAGE, insufficientStorage.needed(), insufficientStorage.free());
    }
    if (thrown instanceof IOException) {
      Log.w(TAG, thrown);
      return of(Problem.MODEL_UNREADABLE);
    }
    Log.e(TAG, "unexpected exception", thrown);
    if (thrown instanceof OutOfMemoryError) {
      return of(Problem.OUT_OF_MEMORY);
    }
    return of(Problem.UNEXPECTED, thrown.getClass().getSimpleName());
  }

  /** Appends a consequence. */
  Message and(Problem consequence) {
    List<List<String>> both = new ArrayList<>(parts);
    both.add(Collections.singletonList(consequence.name()));
    return new Message(both);
  }

  /** Whether the message contains this problem. */
  boolean contains(Problem problem) {
    for (List<String> part : parts) {
      if (part.get(0).equals(problem.name())) {
        return true;
      }
    }
    return false;
  }

  /** Returns the translated text. */
  String text(Context context) {
    List<String> sentences = new ArrayList<>();
    for (List<String> part : parts) {
      Object[] details = part.subList(1, part.size()).toArray();
      sentences.add(context.getString(Problem.valueOf(part.get(0)).text(), details));
    }
    return TextUtils.join(" ", sentences);
  }

  /** Returns a form for saved state, read by {@link #restore}. */
  ArrayList<String> save() {
    ArrayList<String> saved = new ArrayList<>();
    for (List<String> part : parts) {
      saved.add(Integer.toString(part.size()));
      saved.addAll(part);
    }
    return saved;
  }

  /**
   * Reads the result of {@link #save}; returns null for null and for problems unknown to this
   * version of the app.
   */
  static Message restore(List<String> saved) {
    if (saved == null) {
      return null;
    }
    List<List<String>> parts = new ArrayList<>();
    try {
      for (int pos = 0; pos < saved.size(); ) {
        int size = Integer.parseInt(saved.get(pos));
        List<String> part = new ArrayList<>(saved.subList(pos + 1, pos + 1 + size));
        Problem.valueOf(part.get(0));
        parts.add(part);
        pos += 1 + size;
      }
    } catch (IllegalArgumentException | IndexOutOfBoundsException unknown) {
      Log.w(TAG, "saved by another version: " + saved, unknown);
      return null;
    }
    return new Message(parts);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Message && parts.equals(((Message) other).parts);
  }

  @Override
  public int hashCode() {
    return parts.hashCode();
  }

  @Override
  public String toString() {
    return parts.toString();
  }
}
