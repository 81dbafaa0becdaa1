import ava from 'ava';
import { blocksOf } from '../fleet/documented-machines.ts';
import { codeOf, commandsOf, readPage } from '../runbook/runbook-page.ts';
import { ROOT } from '../running-service.ts';
import { TestAuthority } from '../support/certificates.ts';
import { isNotTested } from '../support/skip.ts';
import { fetchSmallestModel, Host, type Ran, skipWithoutNspawn } from './host.ts';

const CHECKOUT = '/opt/matting-0.4.0';
const PAGES = [
  'install',
  'operate',
  'runbook',
  'backup',
  'security',
  'database',
  'storage',
  'gpu',
  'money',
  'people',
];
/** Works without a network. */
const NODE_SETTINGS =
  'MATTING_MODEL=u2netp\\nMATTING_CPU_RUNTIME=onnxruntime\\nMATTING_EXECUTION_PROVIDER=cpu';

const test = ava.serial.skipIf(isNotTested(skipWithoutNspawn()));
let host: Host;
let apiKey = '';

ava.serial.before(async () => {
  if (skipWithoutNspawn()) return;
  fetchSmallestModel();
  host = await Host.boot({ [CHECKOUT]: ROOT });
});
ava.serial.after.always(async () => host?.[Symbol.asyncDispose]());

const done = (lines: string, directory?: string) => host.done(lines, directory);
const until = (what: string, lines: string) => host.until(what, lines);

test('the steps of one machine give a service that cuts pictures out', async t => {
  const [setUp = ''] = blocksOf('docs/install.md', 'Set up each machine');
  await done(`set -e\n${setUp}`, CHECKOUT);
  const [start = '', account = ''] = blocksOf('docs/install.md', 'Run it on one machine');
  const settings = start.replace(/^systemctl.*$/m, '');
  const reached = settings.replace('https://matting.example', 'http://127.0.0.1:8080');
  await done(`set -e\n${reached}\nprintf '${NODE_SETTINGS}\\n' >> /etc/matting/node.env`, CHECKOUT);
  const models = '/var/lib/matting-node/models';
  await done(`install -d -m 700 -o matting -g matting /var/lib/matting-node ${models}
    cp -r ${CHECKOUT}/model-cache/u2netp ${models} && chown -R matting:matting ${models}`);
  const none = await host.run('matting nodes list');
  t.is(none.code, 1, none.said);
  t.regex(none.said, /there is no database at \/var\/lib\/matting\/matting\.sqlite/);
  await done(/^systemctl.*$/m.exec(start)?.[0] ?? '');
  [apiKey = ''] = /\bmk_\w+/.exec(await done(`set -e\n${account}`)) ?? [];
  await until('a node is live', 'matting nodes list | grep live');
  const remove =
    'matting remove docs/images/demo.jpg --to /tmp/cutouts --url http://127.0.0.1:8080';
  await done(`MATTING_API_KEY=${apiKey} ${remove} && ls /tmp/cutouts/demo.png`, CHECKOUT);
  t.is((await done('ls /opt/matting/data 2>/dev/null || echo none')).trim(), 'none');
  t.regex(await done('matting doctor'), /, 0 failures/);
  t.regex(await done('matting doctor --node'), /, 0 failures/);
});

/** These rightly end with 1 here. */
const REFUSED = [
  /There is no order/,
  /the account "shop" exists/,
  /its request had no callback_url/,
  /The job has succeeded and cannot run again/,
  /is not an added model/,
  /name the job, or add --all-missing/,
  /has no result with a valid link/,
  /is not an address, a file or a name of the catalogue/,
  /matting\.sqlite exists; restore into another place/,
  /a directory needs no lifecycle rules/,
  /driver {4}not installed: there is no nvidia-smi/,
];
/** They need a network or a bucket, or are abbreviated. */
const LEFT_OUT =
  /install cuda|models add (?:https:|birefnet)|bench-card|batches|s3:|^matting (?:backup|restore)$/;

test('the commands of the pages run as they are written', async t => {
  await done('install -d -o matting -m 700 /backups');
  const [job = ''] = /[0-9a-f-]{36}/.exec(await done('matting jobs list --state succeeded')) ?? [];
  const [node = ''] = /^\S+(?= +live)/m.exec(await done('matting nodes list')) ?? [];
  const [key = ''] = apiKey.match(/^mk_[^_]+/) ?? [];
  const places: readonly (readonly [RegExp, string])[] = [
    [/<job(?:_id)?>/g, job],
    [/<id>|\bgpu-7\b/g, node],
    [/<key>|\bmk_4fZ0qkT9xW2b\b/g, key],
    [/<account>|\bACCOUNT\b/g, 'shop'],
    [/<mail>/g, 'ann@shop.example'],
    [/<order>/g, 'a2f1c9d0-0000-4000-8000-000000000000'],
    [/<model>/g, 'cutter'],
    [/<n>|<sum>/g, '5'],
    [/<text>/g, 'reference-1'],
    [/\bANOTHER\b/g, '/backups/another'],
    [/\bDIRECTORY\b/g, '/backups/first'],
    [/[[\]]/g, ''],
  ];
  const lines = PAGES.flatMap(page => commandsOf(readPage(`docs/${page}.md`)))
    .filter(line => line.startsWith('matting ') && !LEFT_OUT.test(line))
    .map(line => places.reduce((text, [form, value]) => text.replace(form, value), line));
  // Revocations run last: other commands use the key.
  const commands = [...new Set(lines)].toSorted(
    (one, other) => Number(/keys revoke/.test(one)) - Number(/keys revoke/.test(other)),
  );
  t.true(commands.length > 45, String(commands.length));
  const failed: string[] = [];
  for (const command of commands) {
    const ran = await host.run(command, '/tmp');
    if (!isRight(ran)) failed.push(`${command}: ${ran.code} ${ran.said}`);
  }
  t.deepEqual(failed, []);
  t.is((await done('systemctl list-units --all --no-legend "matting-run-*"')).trim(), '');
});

const isRight = ({ code, said }: Ran) =>
  code === 0 || (code === 1 && REFUSED.some(form => form.test(said)));

test('only root runs commands that need the settings, and a machine without settings says so', async t => {
  const stranger = await host.run('setpriv --reuid=65534 --clear-groups matting nodes list');
  t.is(stranger.code, 77, stranger.said);
  const help = await host.run('setpriv --reuid=65534 --clear-groups matting keys create --help');
  t.is(help.code, 0, help.said);
  const other = await host.run('MATTING_DATA_DIR=/tmp/other matting credits show shop');
  t.is(other.code, 0, other.said);
  t.regex(other.said, /MATTING_… variables of this shell do not count/);
  const without = 'mv /etc/matting/node.env /etc/matting/away; matting models list; code=$?';
  const elsewhere = await host.run(
    `${without}; mv /etc/matting/away /etc/matting/node.env; exit $code`,
  );
  t.is(elsewhere.code, 78, elsewhere.said);
  t.regex(elsewhere.said, /run this on a machine of a node/);
});

test('the migrator alone has its URL', async t => {
  await done(
    'echo MATTING_DATABASE_URL=sqlite:/var/lib/matting/other.sqlite > /etc/matting/migrator.env',
  );
  const migrated = await host.run('matting migrate');
  t.regex(migrated.said, /0006-baseline: done/);
  t.regex(await done('matting accounts list'), /shop/);
  await done('rm /etc/matting/migrator.env');
});

const CHECKLIST = readPage('docs/production.md');
const FILES = '/etc/matting-files';
const DAY_MS = 86_400_000;
/** Only needed with a server or another payment. */
const ELSEWHERE = ['MATTING_DATABASE_URL', 'MATTING_PAYMENT_SECRET'];
const BOTH = [
  `MATTING_NODE_TOKEN_FILE=${FILES}/node-token`,
  `MATTING_TLS_CERT_FILE=${FILES}/cert.pem`,
  `MATTING_TLS_KEY_FILE=${FILES}/key.pem`,
  `MATTING_TLS_SERVER_CA_FILE=${FILES}/ca.pem`,
];
const CONTROL_PLANE = [
  'MATTING_BASE_URL=http://127.0.0.1:8080',
  'MATTING_TRUSTED_PROXIES=127.0.0.1/32',
  'MATTING_STORAGE_URL=file:///srv/matting',
  `MATTING_OPERATOR_KEY=${'0f'.repeat(32)}`,
  'MATTING_METRICS_HOST=127.0.0.1',
  'MATTING_PAYMENT_INSTRUCTIONS=by transfer',
];
const RESTART = 'systemctl restart matting-control-plane matting-node';

/** Leaves out what lets units write to another folder. */
async function walkChecklist(): Promise<void> {
  const [folders = ''] = blocksOf('docs/production.md', 'Files, and who reads them');
  await done(`set -e\n${folders}\ninstall -d -m 700 -o matting /srv/matting`);
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('machine', ['127.0.0.1'], 90 * DAY_MS);
  const files = { 'ca.pem': authority.cert, 'cert.pem': cert, 'key.pem': key };
  for (const [name, pem] of Object.entries(files)) {
    await done(`cat > ${FILES}/${name} <<'PEM'\n${pem}PEM`);
  }
  await done(`set -e; cd /etc/matting
    sed -n 's/^MATTING_NODE_TOKEN=//p' node.env > ${FILES}/node-token
    sed -i '/^MATTING_NODE_TOKEN=/d; /^MATTING_BASE_URL=/d' control-plane.env node.env
    echo "MATTING_SECRETS_KEY=$(cat /var/lib/matting/secrets.key)" >> control-plane.env
    printf '%s\\n' ${[...BOTH, ...CONTROL_PLANE].map(line => `'${line}'`).join(' ')} >> control-plane.env
    printf '%s\\n' ${[...BOTH, 'MATTING_NODE_ID=node-1'].map(line => `'${line}'`).join(' ')} >> node.env
    chgrp matting ${FILES}/* && chmod 640 ${FILES}/*`);
}

test('docs/production.md, walked on that machine, leaves the doctor without a failure', async t => {
  const named = codeOf(CHECKLIST).flatMap(code => /^MATTING_[A-Z_]+(?==|$)/.exec(code) ?? []);
  const set = [...BOTH, ...CONTROL_PLANE].map(line => line.split('=')[0]);
  const walked = [...set, ...ELSEWHERE, 'MATTING_NODE_ID', 'MATTING_NODE_TOKEN'];
  t.deepEqual([...new Set(named)].sort(), [...walked, 'MATTING_SECRETS_KEY'].sort());
  await walkChecklist();
  await host.run(RESTART);
  const ended = 'systemctl show -P ExecMainStatus matting-control-plane | grep -x 78';
  await until('a folder that the unit cannot write to ends the start for good', ended);
  await done(`set -e; for unit in matting-control-plane matting@; do
      mkdir -p /etc/systemd/system/$unit.service.d
      printf '[Service]\\nReadWritePaths=/srv/matting\\n' > /etc/systemd/system/$unit.service.d/override.conf
    done; systemctl daemon-reload; systemctl reset-failed; ${RESTART}`);
  await until('the node is live', 'matting nodes list | grep "^node-1 .*live"');
  const [timers = ''] = blocksOf('docs/install.md', 'Schedule checks and backups');
  await done(
    `set -e\n${timers}\nsystemctl start matting@backup\nls /var/backups/matting/*/backup.json`,
  );
  const places = [...CHECKLIST.matchAll(/^\| `(\/[^`]+)` \| (\w+), (?:group (\w+), )?0(\d+)/gm)];
  t.is(places.length, 5);
  for (const [, place = '', owner, group, mode] of places) {
    const [isOwner, isGroup, isMode] = (await done(`stat -c '%U %G %a' ${place}`))
      .trim()
      .split(' ');
    t.deepEqual([isOwner, isMode, group ?? isGroup], [owner, mode, isGroup], place);
  }
  const said = await done('matting doctor');
  t.regex(said, /, 0 failures/);
  // This node replaces one that ended with its control plane.
  t.notRegex(said, /silent|unreachable/);
  for (const variable of ['CERT', 'SERVER_CA']) {
    t.regex(said, new RegExp(`ok +TLS .*MATTING_TLS_${variable}_FILE expires in`), said);
  }
  t.regex(await done('matting doctor --node'), /, 0 failures/);
  const [key = ''] = /\bmk_\w+/.exec(await done('matting keys create --account shop')) ?? [];
  const remove = 'matting remove docs/images/demo.jpg --to /tmp/again --url http://127.0.0.1:8080';
  await done(`MATTING_API_KEY=${key} ${remove} && ls /tmp/again/demo.png /srv/matting`, CHECKOUT);
  t.is((await host.run('journalctl -o cat | grep DEP0123')).said, '');
});
