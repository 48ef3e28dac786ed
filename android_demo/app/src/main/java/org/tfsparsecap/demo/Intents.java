package org.tfsparsecap.demo;

import android.content.ClipData;
import android.content.Intent;
import android.net.Uri;
import android.os.Build;
import android.os.Bundle;
import android.os.ext.SdkExtensions;
import android.provider.MediaStore;
import android.util.Log;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** Creates intents for other apps, and reads intents from them. */
final class Intents {
  private static final String TAG = "Intents";
  private static final String IMAGES = "image/*";

  private Intents() {}

  /** Intents that choose photos, in order of preference; a phone may not support all of them. */
  static List<Intent> choosePhotos() {
    List<Intent> ways = new ArrayList<>();
    if (hasPhotoPicker()) {
      int max = Math.min(MainViewModel.MAX_PHOTOS, MediaStore.getPickImagesMaxLimit());
      ways.add(
          new Intent(MediaStore.ACTION_PICK_IMAGES)
              .setType(IMAGES)
              .putExtra(MediaStore.EXTRA_PICK_IMAGES_MAX, max));
    }
    for (String action : Arrays.asList(Intent.ACTION_OPEN_DOCUMENT, Intent.ACTION_GET_CONTENT)) {
      ways.add(
          new Intent(action)
              .setType(IMAGES)
              .addCategory(Intent.CATEGORY_OPENABLE)
              .putExtra(Intent.EXTRA_ALLOW_MULTIPLE, true));
    }
    return ways;
  }

  /** Chooses a file of any type: models have no MIME type on phones. */
  static Intent chooseModel() {
    return new Intent(Intent.ACTION_OPEN_DOCUMENT)
        .setType("*/*")
        .addCategory(Intent.CATEGORY_OPENABLE);
  }

  /** Asks the camera app to write a photo to a URI. */
  static Intent takePhoto(Uri into) {
    Intent intent =
        new Intent(MediaStore.ACTION_IMAGE_CAPTURE)
            .putExtra(MediaStore.EXTRA_OUTPUT, into)
            .addFlags(
                Intent.FLAG_GRANT_READ_URI_PERMISSION | Intent.FLAG_GRANT_WRITE_URI_PERMISSION);
    intent.setClipData(ClipData.newRawUri("", into));
    return intent;
  }

  /** Sends a caption to an app that the user chooses. */
  static Intent shareText(String text, CharSequence title) {
    Intent send = new Intent(Intent.ACTION_SEND).setType("text/plain");
    return Intent.createChooser(send.putExtra(Intent.EXTRA_TEXT, text), title);
  }

  /** The documents returned by a picker; empty if there are none. */
  static List<Uri> picked(Intent answer) {
    if (answer == null) {
      return Collections.emptyList();
    }
    List<Uri> picked = fromClip(answer);
    if (picked.isEmpty() && answer.getData() != null) {
      picked.add(answer.getData());
    }
    return picked;
  }

  /** Whether another app shares content with this one. */
  static boolean isShared(Intent intent) {
    boolean fromHistory = (intent.getFlags() & Intent.FLAG_ACTIVITY_LAUNCHED_FROM_HISTORY) != 0;
    String action = intent.getAction();
    return !fromHistory
        && (Intent.ACTION_SEND.equals(action) || Intent.ACTION_SEND_MULTIPLE.equals(action));
  }

  /** The photos that another app shares; empty if there are none. */
  @SuppressWarnings("deprecation") // the replacement requires Android 13
  static List<Uri> shared(Intent intent) {
    List<Uri> shared = new ArrayList<>();
    try {
      Bundle extras = intent.getExtras();
      Object stream = extras == null ? null : extras.get(Intent.EXTRA_STREAM);
      List<?> streams = stream instanceof List ? (List<?>) stream : Collections.singletonList(stream);
      for (Object each : streams) {
        if (each instanceof Uri) {
          shared.add((Uri) each);
        }
      }
    } catch (RuntimeException unreadable) {
      // Other apps can send anything, including instances of classes that are unknown here.
      Log.w(TAG, "cannot read the shared content", unreadable);
    }
    return shared.isEmpty() ? fromClip(intent) : shared;
  }

  private static List<Uri> fromClip(Intent intent) {
    List<Uri> uris = new ArrayList<>();
    ClipData clip = intent.getClipData();
    for (int i = 0; clip != null && i < clip.getItemCount(); i++) {
      if (clip.getItemAt(i).getUri() != null) {
        uris.add(clip.getItemAt(i).getUri());
      }
    }
    return uris;
  }

  private static boolean hasPhotoPicker() {
    if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.TIRAMISU) {
      return true;
    }
    // Android 11 and 12 received it in a system update.
    return Build.VERSION.SDK_INT >= Build.VERSION_CODES.R
        && SdkExtensions.getExtensionVersion(Build.VERSION_CODES.R) >= 2;
  }
}
