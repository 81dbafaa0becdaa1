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

async function cutOutInOrder(pictures: Record<string, Buffer>, order: readonly string[]) {
  const service = await startService({ MATTING_MODEL: '', MATTING_QUALITY: 'standard' });
  try {
    const results = new Map<string, { models: readonly string[]; alpha: Buffer }>();
    for (const name of order) {
      const body = { image_base64: pictures[name]?.toString('base64') };
      const { body: job } = await service.post(body);
      if (job.result === undefined) throw new Error(JSON.stringify(job));
      const file = await fetch(job.result.url);
      const alpha = await sharp(await file.arrayBuffer())
        .extractChannel(3)
        .raw()
        .toBuffer();
      const models = job.models?.map(model => `${model.name} ${model.role}`) ?? [];
      results.set(name, { models, alpha });
    }
    return results;
  } finally {
    await service.close();
  }
}

test('two pictures come out the same in both orders, by the models that each needs', async t => {
  const pictures = await twoPictures();
  const one = await cutOutInOrder(pictures, ['sharp', 'soft']);
  const other = await cutOutInOrder(pictures, ['soft', 'sharp']);
  t.deepEqual(one.get('sharp')?.models, ['isnet subject']);
  const all = ['isnet subject', 'modnet opinion', 'isnet second_look'];
  t.deepEqual(one.get('soft')?.models, all);
  for (const [name, { models, alpha }] of one) {
    t.deepEqual(other.get(name)?.models, models, name);
    t.true(other.get(name)?.alpha.equals(alpha), name);
  }
});
