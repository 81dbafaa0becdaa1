/** A storage directory that is full: the submission is refused, and no credit moves. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { SmallDisk, skipWithoutMounts } from '../../../test/support/small-disk.ts';
import { Replicas } from '../support/replicas.ts';
import { pngHeader } from '../support/test-app.ts';

const DISK_BYTES = 256 * 1024;

describe('a disk that is full', { skip: skipWithoutMounts() }, () => {
  it('refuses the input with 503 and reserves nothing; with room it goes on', async () => {
    const disk = SmallDisk.mount(String(DISK_BYTES));
    const replicas = await Replicas.open('sqlite', { replicas: 1, storageDir: disk.directory });
    try {
      const caller = await replicas.createCaller(1);
      const key = randomUUID();
      const submit = (bytes: number) => {
        const picture = Buffer.concat([pngHeader(4, 3), Buffer.alloc(bytes, 7)]);
        const body = { image_base64: picture.toString('base64') };
        return replicas.post(caller, body, { key, path: '/v1/matting/jobs' });
      };
      const refused = await submit(2 * DISK_BYTES);
      assert.equal(refused.status, 503, JSON.stringify(refused.body));
      assert.equal(refused.body.code, 'SERVICE_UNAVAILABLE');
      assert.equal(refused.body.retryable, true);
      assert.ok(Number(refused.headers.get('retry-after')) > 0);
      const credits = await replicas.stores.ledger.credits(caller.accountId);
      assert.deepEqual([credits?.available, credits?.reserved, credits?.sums.reserve], [1, 0, 0]);
      const files = readdirSync(disk.directory, { recursive: true, withFileTypes: true });
      assert.deepEqual(
        files.filter(file => file.isFile()).map(({ name }) => name),
        [],
      );
      const accepted = await submit(1000);
      assert.equal(accepted.status, 202, 'the key was not remembered, and there is room again');
      const filler = path.join(disk.directory, 'filler');
      assert.throws(() => writeFileSync(filler, Buffer.alloc(DISK_BYTES)), /ENOSPC/);
      const joined = await submit(1000);
      assert.equal(joined.status, 202, 'who joins needs no room');
      assert.equal(joined.body.job_id, accepted.body.job_id);
      assert.equal((await submit(1001)).body.code, 'IDEMPOTENCY_CONFLICT');
    } finally {
      await replicas.close();
      disk.remove();
    }
  });
});
