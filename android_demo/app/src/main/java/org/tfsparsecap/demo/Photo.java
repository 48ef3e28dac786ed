package org.tfsparsecap.demo;

import android.graphics.Bitmap;
import android.net.Uri;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.tfsparsecap.captioner.Caption;

/** One of the photos on the screen, with what is known of it. Immutable. */
final class Photo {
  private final long id;
  private final Uri uri;
  private final boolean fromCamera;
  private final boolean readable;
  private final Bitmap thumbnail;
  private final List<Caption> captions;
  private final Sentence problem;
  private final String triedWith;

  private Photo(
      long id,
      Uri uri,
      boolean fromCamera,
      boolean readable,
      Bitmap thumbnail,
      List<Caption> captions,
      Sentence problem,
      String triedWith) {
    this.id = id;
    this.uri = uri;
    this.fromCamera = fromCamera;
    this.readable = readable;
    this.thumbnail = thumbnail;
    this.captions = Collections.unmodifiableList(new ArrayList<>(captions));
    this.problem = problem;
    this.triedWith = triedWith;
  }

  /**
   * A photo that nothing is known of yet.
   *
   * @param id unlike that of any other photo.
   * @param fromCamera whether it was taken for this app, which then deletes it.
   */
  static Photo unseen(long id, Uri uri, boolean fromCamera) {
    return new Photo(id, uri, fromCamera, true, null, Collections.emptyList(), null, null);
  }

  /** With captions, or none and the problem that explains it. */
  Photo captioned(List<Caption> captions, Sentence problem, String triedWith) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, problem, triedWith);
  }

  /** With a problem; captions that it has stay. */
  Photo failed(Sentence problem, boolean readable, String triedWith) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, problem, triedWith);
  }

  /** As if nothing had been tried. */
  Photo fresh() {
    return new Photo(id, uri, fromCamera, true, thumbnail, captions, null, null);
  }

  /** With a small picture of it. */
  Photo withThumbnail(Bitmap thumbnail) {
    return new Photo(id, uri, fromCamera, readable, thumbnail, captions, problem, triedWith);
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

  /** False when it could not be read. */
  boolean readable() {
    return readable;
  }

  /** Null until it was read. */
  Bitmap thumbnail() {
    return thumbnail;
  }

  /** Best first; empty until there are some. */
  List<Caption> captions() {
    return captions;
  }

  /** The best caption; empty until there is one. */
  String caption() {
    return captions.isEmpty() ? "" : captions.get(0).text();
  }

  /** Null where all is well. */
  Sentence problem() {
    return problem;
  }

  /** {@link ModelStore#key} of the model that has captioned it, or failed to; null for none. */
  String triedWith() {
    return triedWith;
  }
}
