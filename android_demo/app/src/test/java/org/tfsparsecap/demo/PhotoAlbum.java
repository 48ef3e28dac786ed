package org.tfsparsecap.demo;

import android.content.ContentProvider;
import android.content.ContentValues;
import android.database.Cursor;
import android.database.MatrixCursor;
import android.net.Uri;
import android.os.ParcelFileDescriptor;
import android.provider.OpenableColumns;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.robolectric.Robolectric;
import org.robolectric.RuntimeEnvironment;

/** Another app with photos and files. */
public final class PhotoAlbum extends ContentProvider {
  static final String AUTHORITY = "org.example.album";

  private final Map<String, File> files = new HashMap<>();
  private final Set<String> locked = new HashSet<>();
  private final Map<String, Integer> openings = new HashMap<>();

  static PhotoAlbum install() {
    return Robolectric.buildContentProvider(PhotoAlbum.class).create(AUTHORITY).get();
  }

  /** Adds one of the sample photos. */
  Uri photo(String name) {
    return add(name, SamplePhotos.bytes(name));
  }

  /** Adds a file. */
  Uri add(String name, byte[] content) {
    try {
      File file = new File(RuntimeEnvironment.getApplication().getNoBackupFilesDir(), name);
      Files.write(file.toPath(), content);
      files.put(name, file);
      return Uri.parse("content://" + AUTHORITY + "/" + name);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  void delete(Uri uri) {
    files.remove(uri.getLastPathSegment());
  }

  /** Deletes the file after it was opened a number of times. */
  void deleteAfter(Uri uri, int times) {
    openings.put(uri.getLastPathSegment(), times);
  }

  /** Denies access from now on. */
  void denyAccess(Uri uri) {
    locked.add(uri.getLastPathSegment());
  }

  @Override
  public boolean onCreate() {
    return true;
  }

  @Override
  public ParcelFileDescriptor openFile(Uri uri, String mode) throws FileNotFoundException {
    if (locked.contains(uri.getLastPathSegment())) {
      throw new SecurityException("Permission Denial: opening " + uri);
    }
    File file = files.get(uri.getLastPathSegment());
    int left = openings.getOrDefault(uri.getLastPathSegment(), Integer.MAX_VALUE);
    openings.put(uri.getLastPathSegment(), left - 1);
    if (file == null || left <= 0) {
      throw new FileNotFoundException("No item at " + uri);
    }
    return ParcelFileDescriptor.open(file, ParcelFileDescriptor.MODE_READ_ONLY);
  }

  @Override
  public Cursor query(Uri uri, String[] columns, String where, String[] values, String order) {
    MatrixCursor cursor = new MatrixCursor(new String[] {OpenableColumns.DISPLAY_NAME});
    cursor.addRow(new Object[] {uri.getLastPathSegment()});
    return cursor;
  }

  @Override
  public String getType(Uri uri) {
    return "image/jpeg";
  }

  @Override
  public Uri insert(Uri uri, ContentValues values) {
    return null;
  }

  @Override
  public int update(Uri uri, ContentValues values, String where, String[] arguments) {
    return 0;
  }

  @Override
  public int delete(Uri uri, String where, String[] arguments) {
    return 0;
  }
}
