/** Makes one small result, so that a worker's first image finds compiled code. */
import { decodeFile } from '../codecs/decode.ts';
import { encodePixels } from '../codecs/encode.ts';
import { createModelInput } from '../matte/model-input.ts';
import { finishPicture } from './finish.ts';

const SIDE_PX = 64;
/** A model's input larger than the picture is the most frequent case. */
const MODEL_SIDE_PX = 96;

export async function warmUp(): Promise<void> {
  const size = { width: SIDE_PX, height: SIDE_PX };
  const data = Buffer.alloc(SIDE_PX * SIDE_PX * 4, 200);
  const file = await encodePixels({ data, ...size, channels: 4 }, 'png');
  const picture = await decodeFile(file, { declared: undefined, onOpened: () => undefined });
  const modelSize = { width: MODEL_SIDE_PX, height: MODEL_SIDE_PX };
  createModelInput(picture, modelSize);
  const alpha = Buffer.alloc(MODEL_SIDE_PX * MODEL_SIDE_PX, 255);
  // Edges give refinement and foreground estimation work.
  for (let at = 0; at < alpha.length; at += 2) alpha[at] = 100;
  await finishPicture(picture, [{ alpha, ...modelSize, role: 'subject' }], {
    refinement: true,
    foregroundEstimation: true,
    outputFormat: 'webp',
    resultKind: 'cutout',
  });
}
