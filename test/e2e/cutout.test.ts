import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import sharp from 'sharp';
import { isolatedEnv, ROOT, spawnMatting } from '../running-service.ts';
import { requireTeapot } from '../support/teapot.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

test('the demo picture comes out as a teapot, and a picture of nothing fails and leaves no file', async t => {
  const folder = await temporaryFolder(t);
  copyFileSync(path.join(ROOT, 'docs/images/demo.jpg'), path.join(folder, 'demo.jpg'));
  const create = { width: 640, height: 480, channels: 3, background: '#8a9097' } as const;
  await sharp({ create }).toFile(path.join(folder, 'wall.png'));
  const { env } = await isolatedEnv({ MATTING_ENGINES: '1', MATTING_PICTURE_WORKERS: '1' });
  const args = ['cutout', 'demo.jpg', 'wall.png', '--model', 'isnet', '--fail-without-subject'];
  const { exited, output } = spawnMatting(args, env, folder);
  t.is(await exited, 1, output());
  t.regex(output(), /Service ready(.|\n)*demo\.jpg -> .*(.|\n)*infer \d+ ms/);
  t.regex(output(), /wall\.png: NO_SUBJECT: /);
  t.deepEqual(readdirSync(folder).toSorted(), ['demo-cutout.png', 'demo.jpg', 'wall.png']);
  // The lid and its shadow.
  const more = { teapot: [[562, 240]], background: [[950, 610]] } as const;
  await t.notThrowsAsync(requireTeapot(readFileSync(path.join(folder, 'demo-cutout.png')), more));
});
