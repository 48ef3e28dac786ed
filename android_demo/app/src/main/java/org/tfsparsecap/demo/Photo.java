package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** A photo on the screen, with its results so far. Immutable. */
final class Photo {
  private final long id;
  private final Uri uri;
  private final boolean fromCamera;
  private final boolean readable;
  private final Bitmap thumbnail;
  private final List<Caption> captions;
  private final List<String> objects;
  private final Message problem;
  private final String modelKey;

  private Photo(
      long id,
      Uri uri,
      boolean fromCamera,
      boolean readable,
      Bitmap thumbnail,
      List<Caption> captions,
      List<String> objects,
      Message problem,
      String modelKey) {
    this.id = id;
    this.uri = uri;
    this.fromCamera = fromCamera;
    this.readable = readable;
    this.thumbnail = thumbnail;
    this.captions = Collections.unmodifiableList(new ArrayList<>(captions));
    this.objects = Collections.unmodifiableList(new ArrayList<>(objects));
    this.problem = problem;
    this.modelKey = modelKey;
  }

  /**
   * A photo that has not been processed.
   *
   * @param id unique among the photos.
   * @param fromCamera whether the photo was taken for this app, which then deletes it.
   */
  static Photo pending(long id, Uri uri, boolean fromCamera) {
    List<Caption> captions = Collections.emptyList();
    List<String> objects = Collections.emptyList();
    return new Photo(id, uri, fromCamera, true, null, captions, objects, null, null);
  }

  /** Sets the captions and the likely objects, or the problem that explains why there are no captions. */
  Photo captioned(List<Caption> captions, List<String> objects, Message problem, String modelKey) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, objects, problem, modelKey);
  }

  /** Sets a problem; existing captions are kept. */
  Photo failed(Message problem, boolean readable, String modelKey) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, objects, problem, modelKey);
  }

  /** Discards the results, so that the photo is processed again. */
  Photo reset() {
    return new Photo(id, uri, fromCamera, true, thumbnail, captions, objects, null, null);
  }

  /** Sets the thumbnail. */
  Photo withThumbnail(Bitmap thumbnail) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, objects, problem, modelKey);
  }

  long id() {
    return id;
  }

  Uri uri() {
    return uri;
  }

  boolean fromCamera() {
    return fromCamera;
  }

  /** False if the photo could not be read. */
  boolean readable() {
    return readable;
  }

  /** Null until the photo is read. */
  Bitmap thumbnail() {
    return thumbnail;
  }

  /** Best first; empty until the photo is captioned. */
  List<Caption> captions() {
    return captions;
  }

  /** The objects that are probably in the photo, likeliest first. */
  List<String> objects() {
    return objects;
  }

  /** The best caption; null until the photo is captioned. */
  Caption best() {
    return captions.isEmpty() ? null : captions.get(0);
  }

  /** The text of the best caption; empty until the photo is captioned. */
  String caption() {
    return captions.isEmpty() ? "" : captions.get(0).text();
  }

  /** Null if there is no problem. */
  Message problem() {
    return problem;
  }

  /** {@link ModelStore#key} of the model that captioned the photo or failed to; null for none. */
  String modelKey() {
    return modelKey;
  }
}
