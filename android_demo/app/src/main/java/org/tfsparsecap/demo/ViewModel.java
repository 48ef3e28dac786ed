package org.tfsparsecap.demo;

import android.os.Bundle;
import java.util.concurrent.Callable;
import java.util.function.Consumer;

/**
 * State and logic of a screen, without views; survives configuration changes.
 *
 * <p>Used on the main thread. Slow work runs on one background thread, one task at a time. The
 * state determines the next task, so obsolete work is never started.
 *
 * @param <S> state of the screen; immutable.
 */
abstract class ViewModel<S extends ViewModel.State<S>> {
  /** Part of every screen's state. */
  interface State<S> {
    /** Sets the notice; null for none. */
    S withNotice(Message notice);
  }

  private final Worker worker;
  private Consumer<S> screen;
  private S state;
  private boolean busy;
  private boolean closed;

  /**
   * @param thread name of the background thread.
   * @param state the initial state.
   */
  ViewModel(String thread, S state) {
    worker = new Worker(thread);
    this.state = state;
  }

  /** Sends the current state and all later ones to a screen; null for none. */
  final void attach(Consumer<S> screen) {
    this.screen = screen;
    if (screen != null) {
      screen.accept(state);
    }
  }

  /** The current state. */
  final S state() {
    return state;
  }

  /** Shows a message that does not concern a single photo or model. */
  final void notice(Problem problem) {
    set(state.withNotice(Message.of(problem)));
  }

  /** Called when the user dismisses the notice. */
  final void dismissNotice() {
    set(state.withNotice(null));
  }

  /** Starts the next task that the state requires; called only while no task is running. */
  abstract void startNext();

  /** Saves the state that must survive the process. */
  abstract void save(Bundle to);

  /** Restores the saved state in a new process. */
  abstract void restore(Bundle from);

  /**
   * Releases all resources; the running task is completed first.
   *
   * @param finishing whether the screen will not be restored.
   */
  abstract void close(boolean finishing);

  /** Whether the screen is visible. */
  final boolean isShown() {
    return screen != null;
  }

  final void set(S state) {
    this.state = state;
    if (screen != null) {
      screen.accept(state);
    }
  }

  /** Starts the next task, unless one is running. */
  final void startNextIfIdle() {
    if (!busy && !closed) {
      startNext();
    }
  }

  /** Runs a task that {@link #startNext} has chosen, then starts the next one. */
  final <T> void run(Callable<T> job, Consumer<T> done, Consumer<Throwable> failed) {
    busy = true;
    worker.run(
        job,
        result -> finish(() -> done.accept(result)),
        thrown -> finish(() -> failed.accept(thrown)));
  }

  /** Runs a task that does not depend on the state; a failure is shown as a notice. */
  final void runInBackground(Runnable job) {
    worker.run(
        () -> {
          job.run();
          return null;
        },
        nothing -> {},
        thrown -> {
          if (!closed) {
            set(state.withNotice(Message.of(thrown)));
          }
        });
  }

  /**
   * Accepts no more tasks; the running one is completed, its result is discarded, and {@code last}
   * runs after it.
   */
  final void shutDown(Runnable last) {
    closed = true;
    screen = null;
    worker.finish(last);
  }

  private void finish(Runnable end) {
    busy = false;
    if (!closed) {
      end.run();
      startNextIfIdle();
    }
  }
}
