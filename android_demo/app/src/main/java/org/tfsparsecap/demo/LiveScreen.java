package org.tfsparsecap.demo;

import android.app.Activity;
import android.os.Build;
import android.view.HapticFeedbackConstants;
import android.view.View;
import android.widget.Switch;
import android.widget.TextView;
import org.tfsparsecap.captioner.Caption;

/** The views of the live screen; renders a {@link LiveState}. */
final class LiveScreen {
  private final Activity activity;
  private final NoticeCard notice;
  private final View root;
  private final PhotoView frame;
  private final TextView caption;
  private final TextView confidence;
  private final TextView stage;
  private final View problemCard;
  private final TextView problem;
  private final Switch voice;

  private int shownUnsure = -1;
  /** The caption that was announced last. */
  private Caption said;

  /** @param retry called when the user wants to start again after a problem. */
  LiveScreen(Activity activity, LiveViewModel viewModel, Runnable retry) {
    this.activity = activity;
    notice = new NoticeCard(activity, viewModel::dismissNotice);
    root = activity.findViewById(R.id.root);
    frame = activity.findViewById(R.id.photo);
    caption = activity.findViewById(R.id.caption);
    confidence = activity.findViewById(R.id.confidence);
    stage = activity.findViewById(R.id.stage);
    problemCard = activity.findViewById(R.id.problem_card);
    problem = activity.findViewById(R.id.problem);
    voice = activity.findViewById(R.id.voice);
    activity.findViewById(R.id.retry).setOnClickListener(clicked -> retry.run());
    voice.setOnCheckedChangeListener((view, on) -> viewModel.setVoice(on));
  }

  /** Renders a state. Screen readers announce stages only when they change. */
  void show(LiveState state) {
    notice.show(state.notice());
    voice.setChecked(state.voice());
    frame.setImage(state.frame());
    MainScreen.setVisible(frame, state.frame() != null);
    showCaption(state);
    MainScreen.setText(stage, state.problem() == null ? activity.getString(state.stage().text()) : "");
    MainScreen.setVisible(stage, stage.length() > 0);
    MainScreen.setText(problem, state.problem() == null ? "" : state.problem().text(activity));
    MainScreen.setVisible(problemCard, state.problem() != null);
    root.setKeepScreenOn(state.stage() == LiveState.Stage.LOOKING);
    vibrate(state.unsureCount());
  }

  /** Describes the frame that is shown; only a caption that the app says is announced by screen readers. */
  private void showCaption(LiveState state) {
    CharSequence text = CaptionFormat.sentence(activity, state.best(), state.objects());
    boolean empty = text.length() == 0;
    String sure = empty ? "" : CaptionFormat.confidence(activity, state.best(), state.objects());
    if (empty && state.frame() != null) {
      text = activity.getString(R.string.not_sure);
    }
    boolean isSaid = state.said() != null && state.said() != said;
    said = state.said();
    boolean isEqual = text.toString().contentEquals(caption.getText());
    if (isSaid && isEqual) {
      // It was shown before the app was sure of it. Screen readers may ignore an equal text, so it is cleared silently.
      caption.setAccessibilityLiveRegion(View.ACCESSIBILITY_LIVE_REGION_NONE);
      caption.setText("");
    }
    if (isSaid || !isEqual) {
      caption.setAccessibilityLiveRegion(
          isSaid ? View.ACCESSIBILITY_LIVE_REGION_POLITE : View.ACCESSIBILITY_LIVE_REGION_NONE);
      caption.setText(text);
    }
    MainScreen.setVisible(caption, text.length() > 0);
    MainScreen.setText(confidence, sure);
    MainScreen.setVisible(confidence, !sure.isEmpty());
  }

  /** Vibrates once for each new caption that is not read aloud, but not for those of an earlier screen. */
  private void vibrate(int unsure) {
    if (shownUnsure >= 0 && unsure > shownUnsure) {
      root.performHapticFeedback(
          Build.VERSION.SDK_INT >= Build.VERSION_CODES.R
              ? HapticFeedbackConstants.REJECT
              : HapticFeedbackConstants.LONG_PRESS);
    }
    shownUnsure = unsure;
  }
}
