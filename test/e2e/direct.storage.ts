/** Files straight between a real node and a real store. Needs: object-storage. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { ROOT, type RunningService, startService } from '../running-service.ts';
import { groupIf } from '../support/database.ts';
import {
  CREDENTIALS_ENV,
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '../support/object-storage/object-store.ts';

const test = ava.serial;

const PHOTO = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));

/** Name, fields, type and, where they are not the photo's, the pixels of the result. */
const ASKED = [
  ['PNG', { output_format: 'png' }, 'image/png'],
  ['JPEG XL', { output_format: 'jxl' }, 'image/jxl'],
  [
    'JPEG before a colour, scaled',
    { output_format: 'jpeg', background: '#ff00ff', output_width: 400, output_height: 300 },
    'image/jpeg',
    [400, 300],
  ],
  ['the matte alone', { channels: 'alpha' }, 'image/png'],
] as const;

for (const kind of OBJECT_STORES) {
  const isHere = missingStore(kind) === false;
  const group = groupIf(isHere, test, `files that go straight to ${kind}`);
  const store = useObjectStore(group, kind);
  let service: RunningService;

  group.before(async () => {
    service = await startService({
      ...CREDENTIALS_ENV,
      MATTING_STORAGE_URL: store.url(),
      MATTING_DIRECT_STORAGE: 'true',
      MATTING_DIRECT_STORAGE_ENDPOINTS: store.endpoint,
    });
  });
  group.after.always(() => service?.close());

  const attempts = async () => {
    const page = await fetch(`http://127.0.0.1:${service.env.MATTING_METRICS_PORT}/metrics`);
    const lines = (await page.text()).split('\n');
    const counted = lines.filter(line => line.startsWith('matting_control_direct_attempts_total'));
    const each = counted.map(line => {
      const [, outcome = '', value = ''] = /outcome="([^"]+)"\} (\d+)/.exec(line) ?? [];
      return [outcome, Number(value)] as const;
    });
    return Object.fromEntries(each.filter(([, value]) => value > 0));
  };

  for (const [index, [name, fields, type, size = [1200, 900]]] of ASKED.entries()) {
    group(`${name}: put by the node, seen by the control plane, charged once`, async t => {
      const { available } = await service.credits();
      const image_base64 = PHOTO.toString('base64');
      const { status, body } = await service.post({ image_base64, ...fields });
      t.is(status, 200, JSON.stringify(body));
      const { result } = body;
      assert.ok(result !== undefined);
      t.deepEqual([result.contentType, result.width, result.height], [type, ...size]);
      const link = await fetch(result.url);
      t.is(link.headers.get('content-type'), type);
      t.is((await link.arrayBuffer()).byteLength, result.sizeBytes);
      t.is((await service.credits()).available, available - 1);
      t.deepEqual(await attempts(), { done: index + 1 });
    });
  }

  group(`a picture behind the subject travels the same way`, async t => {
    const before = await attempts();
    const form = new FormData();
    form.set('image_file', new Blob([PHOTO]), 'photo.jpg');
    form.set('background_file', new Blob([PHOTO]), 'behind.jpg');
    form.set('output_format', 'jpeg');
    const answer = await fetch(`${service.baseUrl}/v1/matting`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': randomUUID() },
      body: form,
    });
    const text = await answer.text();
    t.is(answer.status, 200, text);
    t.deepEqual(await attempts(), { done: Number(before.done) + 1 });
  });

  group(`a damaged photo is the photo’s fault, and costs nothing`, async t => {
    const { available } = await service.credits();
    const image_base64 = PHOTO.subarray(0, PHOTO.length / 2).toString('base64');
    const { status, body } = await service.post({ image_base64 });
    t.is(status, 422, JSON.stringify(body));
    t.is((await service.credits()).available, available);
  });
}
