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

/**
 * Lets the camera app write the file created by {@link CameraFiles}. Not exported: only an app that
 * was granted a URI can open it, and only that one.
 */
public final class CameraProvider extends ContentProvider {
  @Override
  public boolean onCreate() {
    return true;
  }

  @Override
  public ParcelFileDescriptor openFile(Uri uri, String mode) throws FileNotFoundException {
    File file = file(uri);
    if (!file.exists()) {
      throw new FileNotFoundException("no photo " + uri); // never created, or deleted since
    }
    return ParcelFileDescriptor.open(file, ParcelFileDescriptor.parseMode(mode));
  }

  @Override
  public Cursor query(
      Uri uri, String[] projection, String selection, String[] arguments, String order) {
    MatrixCursor cursor =
        new MatrixCursor(new String[] {OpenableColumns.DISPLAY_NAME, OpenableColumns.SIZE});
    File file = file(uri);
    if (file.exists()) {
      cursor.addRow(new Object[] {file.getName(), file.length()});
    }
    return cursor;
  }

  @Override
  public String getType(Uri uri) {
    return "image/jpeg";
  }

  @Override
  public Uri insert(Uri uri, ContentValues values) {
    throw new UnsupportedOperationException("insert");
  }

  @Override
  public int update(Uri uri, ContentValues values, String selection, String[] arguments) {
    throw new UnsupportedOperationException("update");
  }

  @Override
  public int delete(Uri uri, String selection, String[] arguments) {
    throw new UnsupportedOperationException("delete");
  }

  /** Only the last path segment: a URI with ".." leads nowhere. */
  private File file(Uri uri) {
    String name = uri.getLastPathSegment();
    return new File(CameraFiles.folder(getContext()), new File(name == null ? "" : name).getName());
  }
}
