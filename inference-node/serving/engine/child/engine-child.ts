/** Program of an engine's process: one model, one run at a time (engine-protocol.ts). */
// Must come before the imports that load ONNX Runtime.
import './runtime-redirect.ts';
import { flushCompileCache } from 'node:module';
import type { Frame } from '../../process/frames.ts';
import { raiseOomScore } from '../../process/oom-score.ts';
import { serveParent } from '../../process/serve-parent.ts';
import { type FromEngine, shortenNativeError, type ToEngine } from '../engine-protocol.ts';
import { LoadedModel, NoMatteError } from './loaded-model.ts';

let model: LoadedModel | undefined;
let served: Promise<void> = Promise.resolve();

/**
 * One buffer for all pictures, since a run ends before the next picture arrives. Allocating one for
 * each 1024x1024 picture took half of an engine's time around a run.
 */
let picture = Buffer.alloc(0);
function take(bytes: number): Buffer {
  if (picture.length !== bytes) picture = Buffer.allocUnsafeSlow(bytes);
  return picture;
}

const channel = serveParent<ToEngine>(
  frame => {
    served = served.then(() => serve(frame));
  },
  { take },
);

function reply(message: FromEngine, parts?: readonly Uint8Array[]): Promise<void> {
  return channel.send(message, parts);
}

async function serve({ head, parts }: Frame<ToEngine>): Promise<void> {
  if (head.kind === 'init') {
    try {
      // Done before the graph takes memory: loading may already exhaust it.
      if (head.spec.form !== undefined) raiseOomScore('addedEngine');
      const loaded = await LoadedModel.load(head.spec, parts[0]);
      model = loaded.model;
      await reply({ kind: 'ready', warmMs: loaded.warmMs });
      // Node writes its compile cache at exit, but this process will be killed.
      flushCompileCache();
    } catch (error) {
      await reply({ kind: 'broken', message: messageOf(error) });
    }
    return;
  }
  const { id } = head;
  // The kernel buffers such a small frame at once, so it leaves before the run blocks this loop.
  void reply({ kind: 'started', id });
  try {
    if (model === undefined) throw new Error('a run before the model was loaded');
    const [rgb] = parts;
    if (rgb === undefined) throw new Error('a run without a picture');
    const { alpha, size } = await model.run(rgb, head.size);
    // Sends the alpha before another run begins, since the model reuses this memory.
    await reply({ kind: 'done', id, size }, [alpha]);
  } catch (error) {
    const ofPicture = error instanceof NoMatteError;
    await reply({ kind: 'failed', id, message: messageOf(error), ofPicture });
  }
}

function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return shortenNativeError(message).slice(0, 2000);
}
