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

/** One or more sentences for a person, in whatever language the phone speaks when they are shown. Immutable. */
final class Sentence {
  private static final String TAG = "Sentence";

  // Each: the name of a Problem, then its details.
  private final List<List<String>> parts;

  private Sentence(List<List<String>> parts) {
    this.parts = Collections.unmodifiableList(parts);
  }

  /** A problem with the details that its constant asks for. */
  static Sentence of(Problem problem, String... details) {
    List<String> part = new ArrayList<>();
    part.add(problem.name());
    part.addAll(Arrays.asList(details));
    return new Sentence(Collections.singletonList(part));
  }

  /** What a person reads of something that was thrown. What nobody expected is logged with its traceback. */
  static Sentence of(Throwable thrown) {
    if (thrown instanceof PhotoException) {
      return of(Problem.valueOf("PHOTO_" + ((PhotoException) thrown).reason().name()));
    }
    if (thrown instanceof LinkageError || thrown.getCause() instanceof LinkageError) {
      Log.e(TAG, "no runtime", thrown);
      return of(Problem.NO_RUNTIME); // the captioner says it as a bundle that does not run
    }
    if (thrown instanceof BundleException) {
      Log.w(TAG, thrown);
      return of(Problem.valueOf("MODEL_" + ((BundleException) thrown).reason().name()));
    }
    if (thrown instanceof NoRoomException) {
      NoRoomException noRoom = (NoRoomException) thrown;
      return noRoom.needed() == null
          ? of(Problem.MODEL_NO_ROOM_FOR_ALL, noRoom.free())
          : of(Problem.MODEL_NO_ROOM, noRoom.needed(), noRoom.free());
    }
    if (thrown instanceof IOException) {
      Log.w(TAG, thrown);
      return of(Problem.MODEL_UNREADABLE);
    }
    Log.e(TAG, "not expected", thrown);
    if (thrown instanceof OutOfMemoryError) {
      return of(Problem.OUT_OF_MEMORY);
    }
    return of(Problem.UNEXPECTED, thrown.getClass().getSimpleName());
  }

  /** This, and what follows from it. */
  Sentence and(Problem consequence) {
    List<List<String>> both = new ArrayList<>(parts);
    both.add(Collections.singletonList(consequence.name()));
    return new Sentence(both);
  }

  /** Whether it speaks of a problem. */
  boolean says(Problem problem) {
    for (List<String> part : parts) {
      if (part.get(0).equals(problem.name())) {
        return true;
      }
    }
    return false;
  }

  /** The words. */
  String text(Context context) {
    List<String> sentences = new ArrayList<>();
    for (List<String> part : parts) {
      Object[] details = part.subList(1, part.size()).toArray();
      sentences.add(context.getString(Problem.valueOf(part.get(0)).text(), details));
    }
    return TextUtils.join(" ", sentences);
  }

  /** For saved state; {@link #restore} takes it back. */
  ArrayList<String> save() {
    ArrayList<String> saved = new ArrayList<>();
    for (List<String> part : parts) {
      saved.add(Integer.toString(part.size()));
      saved.addAll(part);
    }
    return saved;
  }

  /** What {@link #save} gave; null for null, and for what a newer version of the app has saved. */
  static Sentence restore(List<String> saved) {
    if (saved == null) {
      return null;
    }
    List<List<String>> parts = new ArrayList<>();
    try {
      for (int at = 0; at < saved.size(); ) {
        int size = Integer.parseInt(saved.get(at));
        List<String> part = new ArrayList<>(saved.subList(at + 1, at + 1 + size));
        Problem.valueOf(part.get(0));
        parts.add(part);
        at += 1 + size;
      }
    } catch (IllegalArgumentException | IndexOutOfBoundsException unknown) {
      Log.w(TAG, "saved by another version: " + saved, unknown);
      return null;
    }
    return new Sentence(parts);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Sentence && parts.equals(((Sentence) other).parts);
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
