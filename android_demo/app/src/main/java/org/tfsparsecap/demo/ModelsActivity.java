package org.tfsparsecap.demo;

import android.content.ActivityNotFoundException;
import android.content.Context;
import android.content.Intent;
import android.net.Uri;
import android.os.Bundle;
import android.util.Log;
import android.widget.Toolbar;
import java.util.List;

/** Compares the models; the user can choose, open and remove models. */
public final class ModelsActivity extends ViewModelActivity<ModelsState, ModelsViewModel> {
  static final int OPEN = 1;

  private static final String TAG = "ModelsActivity";

  private ModelsScreen screen;

  /** @param photo the photo on which the models are compared; null for none. */
  static Intent intent(Context context, Uri photo) {
    return new Intent(context, ModelsActivity.class).setData(photo);
  }

  @Override
  ModelsViewModel createViewModel(CaptionApplication app) {
    return new ModelsViewModel(app.engine(), app.models(), getIntent().getData());
  }

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.models);
    WindowSetup.padForSystemBars(findViewById(R.id.root));
    WindowSetup.showUpButton(this, (Toolbar) findViewById(R.id.toolbar));
    screen = new ModelsScreen(this, viewModel, this::chooseModel);
  }

  @Override
  void show(ModelsState state) {
    screen.show(state);
  }

  @Override
  protected void onStop() {
    super.onStop();
    screen.closeDialog();
  }

  @Override
  protected void onActivityResult(int request, int result, Intent answer) {
    List<Uri> picked = Intents.picked(answer);
    if (request == OPEN && result == RESULT_OK && !picked.isEmpty()) {
      viewModel.open(picked.get(0));
    }
  }

  private void chooseModel() {
    try {
      startActivityForResult(Intents.chooseModel(), OPEN);
    } catch (ActivityNotFoundException absent) {
      Log.i(TAG, "no app to choose files with", absent);
      viewModel.notice(Problem.NO_FILE_PICKER);
    }
  }
}
