import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { runCommand } from './run-command.ts';

async function run(env: Readonly<Record<string, string>>, ...args: string[]) {
  const lines: string[] = [];
  const take = (text: string) => void lines.push(text);
  const code = await runCommand(args, { out: take, err: take }, env, []);
  return { code, text: lines.join('') };
}

ava('the core’s commands work without packages', async t => {
  const env = { MATTING_DATA_DIR: await temporaryFolder(t) };
  const help = await run(env, '--help');
  t.deepEqual(
    [...help.text.matchAll(/^ {2}([a-z]+)/gm)].map(([, name]) => name),
    ['migrate', 'bootstrap', 'accounts', 'keys', 'credits', 'jobs', 'nodes', 'webhooks'],
  );
  const bootstrap = ['bootstrap', '--account', 'shop', '--credits', '5', '--json'];
  t.is((await run(env, ...bootstrap, '--owner', 'ann@shop.example')).code, 64);
  const made = await run(env, ...bootstrap);
  t.is(made.code, 0, made.text);
  t.deepEqual(Object.keys(JSON.parse(made.text)), ['created', 'account_id', 'api_key']);
  t.regex((await run(env, 'accounts', 'list')).text, /^shop +5 /m);
  t.is((await run(env, 'credits', 'check')).code, 0);
});
