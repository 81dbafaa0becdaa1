/** The receivers of docs/examples take what is signed here, tell repeats, and refuse the rest. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it } from 'node:test';
import { signingKeyOf } from '../../../src/secrets/callback-secret.ts';
import { signMessage } from '../../../src/services/notification/signature.ts';

const EXAMPLES = path.resolve(import.meta.dirname, '../../../../docs/examples');
const BODY = '{"type":"matting.job.succeeded","job_id":"j-1","data":{"note":"é 𝒳"}}';

const has = (command: string) => spawnSync(command, ['--version']).error === undefined;
const RECEIVERS = [
  { name: 'TypeScript', program: process.execPath, script: 'receiver.ts' },
  {
    name: 'Python',
    program: 'python3',
    script: 'receiver.py',
    skip: !has('python3') && 'no Python here',
  },
];

for (const { name, program, script, skip = false } of RECEIVERS) {
  describe(`the receiver in ${name}`, { skip }, () => {
    for (const secret of [
      `whsec_${randomBytes(32).toString('base64')}`,
      `whsec_${randomBytes(32).toString('base64').replace(/=+$/, '')}`,
      'a raw callback secret, kept as it is',
    ]) {
      it(`believes what ${secret.slice(0, 6)} signed and nothing else`, async () => {
        const env = { PATH: process.env.PATH ?? '', CALLBACK_SECRET: secret, PORT: '0' };
        const args = [path.join(EXAMPLES, script)];
        const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
        try {
          const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
          const next = async () => String((await lines.next()).value).trim();
          const port = /(\d{2,5})\D*$/.exec(await next())![1];
          const post = async (body: string, headers: Record<string, string>) => {
            const url = `http://127.0.0.1:${port}/`;
            return (await fetch(url, { method: 'POST', headers, body })).status;
          };
          const signed = (timestampS: number) => ({
            ...signMessage(signingKeyOf(secret), {
              id: 'msg_j-1',
              timestampS,
              body: Buffer.from(BODY),
            }),
          });
          const nowS = Math.floor(Date.now() / 1000);
          assert.equal(await post(BODY, signed(nowS)), 204);
          assert.equal(await next(), 'matting.job.succeeded j-1');
          assert.equal(await post(BODY, signed(nowS)), 204);
          assert.equal(await next(), 'matting.job.succeeded j-1 (a repeat)');
          assert.equal(await post(`${BODY} `, signed(nowS)), 401);
          assert.equal(await post(BODY, signed(nowS - 400)), 401);
          assert.equal(await post(BODY, signed(nowS + 400)), 401);
          assert.equal(await post(BODY, { ...signed(nowS), 'webhook-id': 'msg_j-2' }), 401);
          assert.equal(await post(BODY, {}), 401);
          const both = signed(nowS);
          const signatures = `v1,${randomBytes(32).toString('base64')} ${both['webhook-signature']}`;
          assert.equal(await post(BODY, { ...both, 'webhook-signature': signatures }), 204);
        } finally {
          child.kill('SIGKILL');
          await once(child, 'exit');
        }
      });
    }
  });
}
