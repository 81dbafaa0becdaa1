/** The receivers of docs/examples take what is signed here, tell repeats, and refuse the rest. */
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import ava from 'ava';
import { signingKeyOf } from '../../../src/secrets/callback-secret.ts';
import { signMessage } from '../../../src/services/notification/signature.ts';

const test = ava.serial;

const EXAMPLES = path.resolve(import.meta.dirname, '../../../../docs/examples');
const BODY = '{"type":"matting.job.succeeded","job_id":"j-1","data":{"note":"é 𝒳"}}';

const has = (command: string) => spawnSync(command, ['--version']).error === undefined;
const RECEIVERS = [
  { name: 'TypeScript', program: process.execPath, script: 'receiver.ts' },
  {
    name: 'Python',
    program: 'python3',
    script: 'receiver.py',
    skip: !has('python3'),
  },
];

for (const { name, program, script, skip = false } of RECEIVERS) {
  for (const [kind, secret] of [
    ['a padded whsec_', `whsec_${randomBytes(32).toString('base64')}`],
    ['an unpadded whsec_', `whsec_${randomBytes(32).toString('base64').replace(/=+$/, '')}`],
    ['a raw', 'a raw callback secret, kept as it is'],
  ] as const) {
    test.skipIf(skip)(
      `the receiver in ${name} › believes what ${kind} secret signed and nothing else`,
      async t => {
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
          t.is(await post(BODY, signed(nowS)), 204);
          t.is(await next(), 'matting.job.succeeded j-1');
          t.is(await post(BODY, signed(nowS)), 204);
          t.is(await next(), 'matting.job.succeeded j-1 (a repeat)');
          t.is(await post(`${BODY} `, signed(nowS)), 401);
          t.is(await post(BODY, signed(nowS - 400)), 401);
          t.is(await post(BODY, signed(nowS + 400)), 401);
          t.is(await post(BODY, { ...signed(nowS), 'webhook-id': 'msg_j-2' }), 401);
          t.is(await post(BODY, {}), 401);
          const both = signed(nowS);
          const signatures = `v1,${randomBytes(32).toString('base64')} ${both['webhook-signature']}`;
          t.is(await post(BODY, { ...both, 'webhook-signature': signatures }), 204);
        } finally {
          child.kill('SIGKILL');
          await once(child, 'exit');
        }
      },
    );
  }
}
