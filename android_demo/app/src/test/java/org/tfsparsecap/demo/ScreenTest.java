package org.tfsparsecap.demo;

import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;
import static org.robolectric.Shadows.shadowOf;

import android.Manifest;
import android.app.Activity;
import android.content.Intent;
import android.net.Uri;
import android.os.Bundle;
import android.os.Looper;
import android.os.Parcel;
import android.view.View;
import android.view.ViewGroup;
import android.widget.TextView;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.BooleanSupplier;
import org.junit.After;
import org.junit.Before;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowActivity.IntentForResult;

/** Base of the screen tests: the app on a simulated phone, and another app with photos. */
@RunWith(RobolectricTestRunner.class)
@Config(application = TestApplication.class, qualifiers = "w411dp-h891dp-xhdpi")
public abstract class ScreenTest {
  private static final long TIMEOUT_MS = 30_000;

  private final List<ActivityController<?>> controllers = new ArrayList<>();
  PhotoAlbum album;
  TestApplication app;

  @Before
  public final void makePhone() {
    album = PhotoAlbum.install();
    Robolectric.buildContentProvider(CameraProvider.class).create(CameraFiles.AUTHORITY);
    app = (TestApplication) RuntimeEnvironment.getApplication();
    shadowOf(app).grantPermissions(Manifest.permission.CAMERA);
  }

  @After
  public final void closeScreens() {
    for (ActivityController<?> controller : controllers) {
      if (!controller.get().isDestroyed()) {
        controller.pause().stop().destroy();
      }
    }
  }

  /** Opens the app from the launcher. */
  ActivityController<MainActivity> open() {
    return open(MainActivity.class, new Intent(Intent.ACTION_MAIN));
  }

  <T extends Activity> ActivityController<T> open(Class<T> screen, Intent intent) {
    ActivityController<T> controller = Robolectric.buildActivity(screen, intent);
    controllers.add(controller);
    return controller.setup();
  }

  /** Opens the app with photos shared by another app, and waits for their captions. */
  ActivityController<MainActivity> openWith(String... photos) {
    Uri[] uris = new Uri[photos.length];
    for (int i = 0; i < photos.length; i++) {
      uris[i] = album.photo(photos[i]);
    }
    ActivityController<MainActivity> controller = open(MainActivity.class, share(uris));
    awaitCaptions(controller.get());
    return controller;
  }

  /** Opens the models screen for a photo, and waits for the measurements. */
  ActivityController<ModelsActivity> openModels(Uri photo) {
    Intent intent = ModelsActivity.intent(app, photo);
    ActivityController<ModelsActivity> controller = open(ModelsActivity.class, intent);
    awaitMeasured(controller.get());
    return controller;
  }

  static Intent share(Uri... uris) {
    if (uris.length == 1) {
      return new Intent(Intent.ACTION_SEND)
          .setType("image/jpeg")
          .putExtra(Intent.EXTRA_STREAM, uris[0]);
    }
    return new Intent(Intent.ACTION_SEND_MULTIPLE)
        .setType("image/*")
        .putParcelableArrayListExtra(Intent.EXTRA_STREAM, new ArrayList<>(Arrays.asList(uris)));
  }

  /** Restores a screen in a new process from the state saved before the old one was killed. */
  <T extends Activity> ActivityController<T> killAndRestore(ActivityController<T> controller) {
    Bundle saved = new Bundle();
    controller.pause().stop().saveInstanceState(saved);
    Intent intent = controller.get().getIntent();
    @SuppressWarnings("unchecked")
    Class<T> screen = (Class<T>) controller.get().getClass();
    controller.destroy();
    Parcel parcel = Parcel.obtain();
    parcel.writeBundle(saved);
    parcel.setDataPosition(0);
    Bundle reborn = parcel.readBundle(getClass().getClassLoader());
    ActivityController<T> next = Robolectric.buildActivity(screen, intent);
    controllers.add(next);
    return next.setup(reborn);
  }

  void awaitCaptions(MainActivity screen) {
    await(
        () -> {
          List<Photo> photos = viewModel(screen).state().photos();
          for (Photo photo : photos) {
            if (photo.captions().isEmpty() && photo.problem() == null) {
              return false;
            }
          }
          return !photos.isEmpty();
        },
        "captions");
    idleMainLooper();
  }

  void awaitMeasured(ModelsActivity screen) {
    await(
        () -> {
          ModelsState state = models(screen).state();
          for (ModelRow row : state.rows()) {
            if (row.stage() != ModelRow.Stage.DONE && row.stage() != ModelRow.Stage.FAILED) {
              return false;
            }
          }
          return !state.opening();
        },
        "all models measured");
    idleMainLooper();
  }

  static MainViewModel viewModel(MainActivity screen) {
    return (MainViewModel) screen.onRetainNonConfigurationInstance();
  }

  static ModelsViewModel models(ModelsActivity screen) {
    return (ModelsViewModel) screen.onRetainNonConfigurationInstance();
  }

  /** Runs the main thread until a condition is true. */
  static void await(BooleanSupplier condition, String what) {
    long end = System.currentTimeMillis() + TIMEOUT_MS;
    while (!condition.getAsBoolean()) {
      if (System.currentTimeMillis() > end) {
        fail("timeout: " + what);
      }
      try {
        Thread.sleep(2);
      } catch (InterruptedException stopped) {
        throw new AssertionError(stopped);
      }
      idleMainLooper();
    }
  }

  static void idleMainLooper() {
    shadowOf(Looper.getMainLooper()).idle();
  }

  static void click(Activity screen, int view) {
    View clicked = screen.findViewById(view);
    assertTrue("not visible: " + screen.getResources().getResourceName(view), clicked.isShown());
    assertTrue("not clickable", clicked.isClickable() && clicked.isEnabled());
    clicked.performClick();
    idleMainLooper();
  }

  /** The text of a view; empty if it is not visible. */
  static String text(Activity screen, int view) {
    TextView found = screen.findViewById(view);
    return found.isShown() ? found.getText().toString() : "";
  }

  /** The caption from Python, as the screen shows it. */
  static String expectedCaption(String photo) {
    String caption = SamplePhotos.caption(photo);
    return caption.substring(0, 1).toUpperCase(Locale.ROOT) + caption.substring(1);
  }

  static boolean isShown(Activity screen, int view) {
    return screen.findViewById(view).isShown();
  }

  static String notice(Activity screen) {
    return text(screen, R.id.notice_text);
  }

  static List<View> children(Activity screen, int group) {
    ViewGroup parent = screen.findViewById(group);
    List<View> children = new ArrayList<>();
    for (int i = 0; i < parent.getChildCount(); i++) {
      children.add(parent.getChildAt(i));
    }
    return children;
  }

  /** Returns a result for the last intent that the screen sent to another app. */
  void answer(Activity screen, int result, Intent answer) {
    IntentForResult asked = shadowOf(screen).getNextStartedActivityForResult();
    shadowOf(screen).receiveResult(asked.intent, result, answer);
    idleMainLooper();
  }
}
