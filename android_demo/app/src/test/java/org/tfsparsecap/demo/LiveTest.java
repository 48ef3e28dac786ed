package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.Manifest;
import android.content.Intent;
import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.Color;
import android.os.Looper;
import android.os.SystemClock;
import android.provider.Settings;
import android.text.Editable;
import android.text.TextWatcher;
import android.view.View;
import android.view.accessibility.AccessibilityManager;
import android.widget.Switch;
import android.widget.TextView;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import org.json.JSONException;
import org.json.JSONObject;
import org.junit.Before;
import org.junit.Test;
import org.robolectric.android.controller.ActivityController;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Caption;
import org.tfsparsecap.captioner.CaptioningResult;

/** The live screen with recorded frames; the captions are compared with those of Python. */
public final class LiveTest extends ScreenTest {
  private static final int FRAME_MS = 33;
  /** Captions of low and of high confidence, see {@link ObjectsTest}. */
  private static final String UNSURE = SamplePhotos.HEART_CROSS;

  private static final String SURE = SamplePhotos.TRIANGLE;

  private LiveViewModel viewModel;

  @Before
  public void openAModelThatPredictsObjects() {
    app.engine.builtIn.put(ModelChoice.SPARSE, SamplePhotos.captionerFixture("objects.tflite"));
  }

  @Test
  public void aWalkIsCaptionedOnceASecondAndSpokenWhenItChanges() {
    LiveActivity screen = openLive();
    long start = SystemClock.elapsedRealtime();
    List<String> expected = new ArrayList<>();
    String[] walk = {SURE, UNSURE, SURE, SamplePhotos.CIRCLE_STAR, SamplePhotos.HEART_STAR, UNSURE};
    String last = "";
    for (int round = 0; round < 2; round++) {
      for (String photo : walk) {
        point(photo, 5);
        String caption = caption(photo);
        if (confidence(photo) >= 0.5 && !caption.equals(last)) {
          expected.add(caption);
          last = caption;
        }
      }
    }
    long seconds = (SystemClock.elapsedRealtime() - start) / 1000;
    System.out.printf(
        "MEASURED live mode: walk of %d s, %d inferences, %d captions spoken%n",
        seconds, app.engine.frames, app.speaker.spoken.size());
    assertTrue("inferences: " + app.engine.frames, app.engine.frames <= seconds && app.engine.frames > seconds / 2);
    assertEquals(expected, app.speaker.spoken);
    assertTrue("captions spoken: " + expected, expected.size() >= 2);
    assertTrue("of the last frame", text(screen, R.id.caption).startsWith("Perhaps: "));
  }

  @Test
  public void unsureCaptionsVibrateOnce() {
    LiveActivity screen = openLive();
    View root = screen.findViewById(R.id.root);
    point(SURE, 1);
    assertTrue(text(screen, R.id.confidence).startsWith("Probably"));
    assertEquals("no vibration", -1, shadowOf(root).lastHapticFeedbackPerformed());
    point(UNSURE, 2);
    assertTrue(shadowOf(root).lastHapticFeedbackPerformed() >= 0);
    assertEquals(1, live(screen).state().unsureCount());
    assertEquals(Collections.singletonList(caption(SURE)), app.speaker.spoken);
    point(SURE, 1);
    assertEquals("not repeated", 1, app.speaker.spoken.size());
    assertTrue(root.getKeepScreenOn());
  }

  @Test
  public void captionAndConfidenceAreThoseOfTheFrame() {
    LiveActivity screen = openLive();
    point(SURE, 1);
    assertEquals(caption(SURE), text(screen, R.id.caption).toLowerCase(Locale.ROOT));
    assertEquals("Probably · " + percent(SURE), text(screen, R.id.confidence));
    point(UNSURE, 1);
    assertTrue(text(screen, R.id.caption).startsWith("Perhaps: "));
    assertFalse(isShown(screen, R.id.confidence));
    point(SURE, 1);
    assertEquals(caption(SURE), text(screen, R.id.caption).toLowerCase(Locale.ROOT));
    assertEquals("Probably · " + percent(SURE), text(screen, R.id.confidence));
  }

  @Test
  public void sameCaptionWithAnotherConfidenceIsShownAndNotRepeated() {
    CaptioningResult first = result("a dog runs", 0.8f);
    CaptioningResult second = result("a dog runs", 0.6f);
    LiveState state = LiveState.start(true).sure(photo(SURE), first);
    Caption said = state.said();
    state = state.sure(photo(SURE), second);
    assertSame(said, state.said());
    assertSame(second.captions().get(0), state.best());
  }

  @Test
  public void screenReaderSpeaksInsteadOfTheApp() {
    AccessibilityManager manager = app.getSystemService(AccessibilityManager.class);
    shadowOf(manager).setTouchExplorationEnabled(true);
    LiveActivity screen = openLive();
    point(SURE, 1);
    assertEquals(Collections.emptyList(), app.speaker.spoken);
    assertTrue("announced", isAnnounced(screen));
    point(UNSURE, 1);
    assertFalse("not announced", isAnnounced(screen));
    point(SURE, 1);
    assertFalse("not repeated", isAnnounced(screen));
    live(screen).setFlat(true);
    assertFalse(isShown(screen, R.id.caption));
    live(screen).setFlat(false);
    point(SURE, 1);
    assertTrue("announced again after a pause", isAnnounced(screen));
    View now = screen.findViewById(R.id.confidence);
    assertEquals("not spoken", View.ACCESSIBILITY_LIVE_REGION_NONE, now.getAccessibilityLiveRegion());
  }

  @Test
  public void screenReaderSpeaksACaptionThatBecomesSure() {
    LiveActivity screen = openLive();
    TextView caption = screen.findViewById(R.id.caption);
    LiveState unsure = LiveState.start(true).unsure(photo(SURE), result("a dog runs", 0.4f), true);
    screen.show(unsure);
    assertEquals("A dog runs", caption.getText().toString());
    assertFalse("not announced", isAnnounced(screen));
    List<String> announced = new ArrayList<>();
    caption.addTextChangedListener(
        new TextWatcher() {
          @Override
          public void beforeTextChanged(CharSequence text, int start, int count, int after) {}

          @Override
          public void onTextChanged(CharSequence text, int start, int before, int count) {}

          @Override
          public void afterTextChanged(Editable text) {
            if (isAnnounced(screen)) {
              announced.add(text.toString());
            }
          }
        });
    LiveState sure = unsure.sure(photo(SURE), result("a dog runs", 0.8f));
    screen.show(sure);
    assertEquals(Collections.singletonList("A dog runs"), announced);
    screen.show(sure.sure(photo(SURE), result("a dog runs", 0.6f)));
    assertEquals("not repeated", 1, announced.size());
  }

  @Test
  public void switchTurnsTheVoiceOffPersistently() {
    LiveActivity screen = openLive();
    click(screen, R.id.voice);
    point(SURE, 1);
    assertEquals(Collections.emptyList(), app.speaker.spoken);
    assertFalse(((Switch) openLive().findViewById(R.id.voice)).isChecked());
  }

  @Test
  public void pausesInDarknessAndWhenThePhoneLiesFlat() {
    LiveActivity screen = openLive();
    point(night(), 3);
    assertEquals(0, app.engine.frames);
    assertEquals(screen.getString(R.string.live_dark), text(screen, R.id.stage));
    point(SURE, 1);
    assertEquals(1, app.engine.frames);
    assertEquals(screen.getString(R.string.live_looking), text(screen, R.id.stage));

    live(screen).setFlat(true);
    assertNull("the camera is stopped", app.camera.listener);
    assertEquals(screen.getString(R.string.live_flat), text(screen, R.id.stage));
    assertFalse(screen.findViewById(R.id.root).getKeepScreenOn());
    live(screen).setFlat(false);
    point(UNSURE, 1);
    assertEquals(2, app.engine.frames);
  }

  @Test
  public void theSameCaptionIsSpokenAgainAfterAPause() {
    ActivityController<LiveActivity> controller = open(LiveActivity.class, new Intent());
    awaitModel(controller.get());
    point(SURE, 2);
    assertEquals(1, app.speaker.spoken.size());
    live(controller.get()).setFlat(true);
    assertFalse("nothing is seen", isShown(controller.get(), R.id.photo));
    assertFalse(isShown(controller.get(), R.id.caption));
    live(controller.get()).setFlat(false);
    point(SURE, 2);
    assertEquals("after lying flat", 2, app.speaker.spoken.size());
    point(night(), 2);
    assertFalse(isShown(controller.get(), R.id.caption));
    point(SURE, 2);
    assertEquals("after darkness", 3, app.speaker.spoken.size());
    controller.pause().stop().start().resume();
    point(SURE, 2);
    assertEquals("after the background", 4, app.speaker.spoken.size());
    point(UNSURE, 2);
    point(night(), 2);
    point(UNSURE, 2);
    assertEquals("vibrates again", 2, live(controller.get()).state().unsureCount());
  }

  @Test
  public void leavingTheScreenCancelsTheCaptionAndStopsTheCamera() {
    ActivityController<LiveActivity> controller = open(LiveActivity.class, new Intent());
    awaitModel(controller.get());
    app.engine.block();
    show(photo(SURE));
    assertFalse(app.engine.lastFrame.isDone());
    controller.pause().stop();
    assertTrue(app.engine.lastFrame.isCancelled());
    assertNull(app.camera.listener);
    controller.start().resume();
    assertEquals("the camera is started again", 2, app.camera.starts);
    controller.pause().stop().destroy();
    await(() -> app.engine.closed == 1, "the model to be closed");
  }

  @Test
  public void rotationKeepsTheCaption() {
    ActivityController<LiveActivity> controller = open(LiveActivity.class, new Intent());
    awaitModel(controller.get());
    point(SURE, 1);
    controller.recreate();
    idleMainLooper();
    point(SURE, 2);
    assertEquals("not repeated", 1, app.speaker.spoken.size());
    assertEquals(caption(SURE), text(controller.get(), R.id.caption).toLowerCase(Locale.ROOT));
    assertEquals(1, app.engine.opened);
  }

  @Test
  public void permissionIsAskedForWhenTheScreenIsOpened() {
    shadowOf(app).denyPermissions(Manifest.permission.CAMERA);
    MainActivity main = open().get();
    shadowOf(main).clickMenuItem(R.id.menu_live);
    Intent started = shadowOf(main).getNextStartedActivity();
    assertEquals(LiveActivity.class.getName(), started.getComponent().getClassName());
    assertNull("asked too early", shadowOf(main).getLastRequestedPermission());

    LiveActivity screen = open(LiveActivity.class, started).get();
    assertEquals(
        Collections.singletonList(Manifest.permission.CAMERA),
        java.util.Arrays.asList(shadowOf(screen).getLastRequestedPermission().requestedPermissions));
    assertEquals(0, app.camera.starts);
    allow(screen, false);
    assertEquals(screen.getString(R.string.problem_camera_refused), text(screen, R.id.problem));
    click(screen, R.id.retry);
    assertEquals(
        Settings.ACTION_APPLICATION_DETAILS_SETTINGS, shadowOf(screen).getNextStartedActivity().getAction());
    shadowOf(app).grantPermissions(Manifest.permission.CAMERA);
    allow(screen, true);
    assertEquals(1, app.camera.starts);
    assertFalse(isShown(screen, R.id.problem));
  }

  @Test
  public void takenCameraIsReportedAndTriedAgain() {
    LiveActivity screen = openLive();
    for (Problem problem : new Problem[] {Problem.CAMERA_IN_USE, Problem.CAMERA_FAILED, Problem.NO_CAMERA_DEVICE}) {
      app.camera.listener.onProblem(problem);
      assertEquals(screen.getString(problem.text()), text(screen, R.id.problem));
      assertEquals("", text(screen, R.id.stage));
      assertNull(app.camera.listener);
      click(screen, R.id.retry);
      assertFalse(isShown(screen, R.id.problem));
    }
    point(SURE, 1);
    assertEquals(1, app.speaker.spoken.size());
  }

  @Test
  public void modelThatTheRuntimeCannotRunIsReplacedOrReported() {
    app.engine.builtIn.put(ModelChoice.SPARSE, SamplePhotos.captionerFixture("future_operator.tflite"));
    LiveActivity screen = openLive();
    String rejected = screen.getString(R.string.problem_model_not_runnable);
    assertEquals(rejected + " " + screen.getString(R.string.problem_model_fallback), notice(screen));
    point(SURE, 1);
    assertEquals(1, app.engine.frames);
    app.engine.failure = new BundleException(BundleException.Reason.NEWER_FORMAT, "version 9");
    point(SURE, 1);
    assertEquals(screen.getString(R.string.problem_model_newer_format), text(screen, R.id.problem));
  }

  private LiveActivity openLive() {
    LiveActivity screen = open(LiveActivity.class, new Intent()).get();
    awaitModel(screen);
    return screen;
  }

  private void awaitModel(LiveActivity screen) {
    viewModel = live(screen);
    await(() -> app.camera.listener.wantsFrame(), "the model");
  }

  /** Points the camera at a photo for a number of seconds, at 30 frames a second. */
  private void point(String photo, int seconds) {
    point(photo(photo), seconds);
  }

  private void point(Bitmap frame, int seconds) {
    // Drawing moves the clock as well.
    long end = SystemClock.elapsedRealtime() + seconds * 1000;
    while (SystemClock.elapsedRealtime() < end) {
      int before = app.engine.frames;
      Object state = viewModel.state();
      show(frame);
      if (app.engine.frames > before) {
        await(() -> viewModel.state() != state, "the caption of frame " + app.engine.frames);
      }
      shadowOf(Looper.getMainLooper()).idleFor(FRAME_MS, TimeUnit.MILLISECONDS);
    }
  }

  private void show(Bitmap frame) {
    FrameSource.Listener listener = app.camera.listener;
    if (listener != null && listener.wantsFrame()) {
      listener.onFrame(frame);
    }
  }

  private static Bitmap night() {
    Bitmap night = Bitmap.createBitmap(64, 48, Bitmap.Config.ARGB_8888);
    night.eraseColor(Color.rgb(9, 8, 12));
    return night;
  }

  /** Whether screen readers speak the caption that is shown. */
  private static boolean isAnnounced(LiveActivity screen) {
    int region = screen.findViewById(R.id.caption).getAccessibilityLiveRegion();
    return region == View.ACCESSIBILITY_LIVE_REGION_POLITE;
  }

  static Bitmap photo(String name) {
    byte[] content = SamplePhotos.bytes(name);
    return BitmapFactory.decodeByteArray(content, 0, content.length);
  }

  private static LiveViewModel live(LiveActivity screen) {
    return (LiveViewModel) screen.onRetainNonConfigurationInstance();
  }

  private static void allow(LiveActivity screen, boolean allowed) {
    screen.onRequestPermissionsResult(
        1, new String[] {Manifest.permission.CAMERA}, new int[] {allowed ? 0 : -1});
    idleMainLooper();
  }

  private static String caption(String photo) {
    return best(photo).optString("text");
  }

  private static double confidence(String photo) {
    return best(photo).optDouble("confidence");
  }

  private static String percent(String photo) {
    return Math.round(100 * confidence(photo)) + "%";
  }

  private static CaptioningResult result(String text, float confidence) {
    return new CaptioningResult(
        Collections.singletonList(new Caption(text, 0, confidence)), Collections.emptyList(), 0, 0);
  }

  /** The best caption in Python. */
  private static JSONObject best(String photo) {
    try {
      JSONObject all = new JSONObject(SamplePhotos.captionerText("objects.json"));
      return all.getJSONObject(photo).getJSONArray("captions").getJSONObject(0);
    } catch (JSONException error) {
      throw new AssertionError(error);
    }
  }
}
