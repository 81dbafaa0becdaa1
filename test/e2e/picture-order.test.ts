/**
 * Tests that the result for a picture depends on the picture alone, and not on those before it:
 * through REST, the real pools, and the engines of `standard`, whose further models run only where
 * the first is unsure.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import sharp from 'sharp';
import { ROOT, startService } from '../running-service.ts';

/** A sharp thing, and one out of focus: a fifth of what the first model shows of it is unsure. */
async function twoPictures() {
  const demo = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));
  const sharpThing = await sharp(demo).resize(600, 450).png().toBuffer();
  const soft = await sharp(demo).resize(600, 450).blur(4).png().toBuffer();
  return { sharp: sharpThing, soft };
}

test('a picture comes out the same after itself and after another, by the models that it needs', async t => {
  const pictures = await twoPictures();
  const few = { MATTING_ENGINES: '1', MATTING_PICTURE_WORKERS: '1' };
  const service = await startService({ MATTING_MODEL: '', MATTING_QUALITY: 'standard', ...few });
  t.teardown(() => service.close());
  const cutOut = async (picture: Buffer) => {
    const { body: job } = await service.post({ image_base64: picture.toString('base64') });
    if (job.result === undefined) throw new Error(JSON.stringify(job));
    const file = await (await fetch(job.result.url)).arrayBuffer();
    const models = job.models?.map(model => `${model.name} ${model.role}`);
    return { models, alpha: await sharp(file).extractChannel(3).raw().toBuffer() };
  };
  // An unsure picture comes first: the engine of the second look still loads.
  const soft = await cutOut(pictures.soft);
  const first = await cutOut(pictures.sharp);
  const again = await cutOut(pictures.sharp);
  const last = await cutOut(pictures.soft);
  t.deepEqual(first.models, ['isnet subject']);
  t.deepEqual(soft.models, ['isnet subject', 'modnet opinion', 'isnet second_look']);
  t.deepEqual([again.models, last.models], [first.models, soft.models]);
  t.true(again.alpha.equals(first.alpha), 'sharp after soft, and after itself');
  t.true(last.alpha.equals(soft.alpha), 'soft as the first, and after sharp');
});
