/** On machines that the last release's own page set up. */
import { chmodSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { blocksOf } from '../fleet/documented-machines.ts';
import { ReleaseCheckout } from '../fleet/installed-version.ts';
import { ROOT } from '../running-service.ts';
import { isNotTested } from '../support/skip.ts';
import { releaseSkipReason } from '../upgrade/releases.ts';
import { fetchSmallestModel, Host, skipWithoutNspawn } from './host.ts';

const PAGE = 'docs/operate.md';
/** Valid until the next release is prepared (docs/releasing.md). */
const version = '0.3.0';
const commits = JSON.parse(readFileSync(path.join(ROOT, 'deploy/releases.json'), 'utf8'));
const release = { version, commit: commits[version] };
const test = ava.serial.skipIf(isNotTested(releaseSkipReason(release) || skipWithoutNspawn()));

const NEW = '/opt/matting-0.4.0';
const OLD = `/opt/matting-${version}`;
const MODELS = '/var/lib/matting-node/models';
const NODE_SETTINGS = 'MATTING_MODEL=u2netp\\nMATTING_EXECUTION_PROVIDER=cpu\\n';
const DATABASE = '--no-defaults --user=root --datadir=/var/lib/database';
const SERVER_SETTINGS = `MATTING_DATABASE_URL=mysql://root@127.0.0.1/matting\\nMATTING_SECRETS_KEY=${'ab'.repeat(32)}\\n`;

const SECTIONS = {
  'Upgrade one machine': { settings: '', database: '' },
  'Upgrade several machines': {
    settings: SERVER_SETTINGS,
    database: `mariadb-install-db ${DATABASE} --auth-root-authentication-method=normal
      systemd-run --unit=database mariadbd ${DATABASE} --socket=/run/database --bind-address=127.0.0.1
      for i in $(seq 60); do mariadb -S /run/database -e 'create database matting' && break; sleep 1; done`,
  },
};

for (const [section, { settings, database }] of Object.entries(SECTIONS)) {
  test(`"${section}" brings a service of ${release.version} to this version, and "Go back" back`, async t => {
    fetchSmallestModel();
    await using checkout = await ReleaseCheckout.install(release);
    // The programs' user reads it too.
    chmodSync(checkout.root, 0o755);
    const folders = { [NEW]: ROOT, [OLD]: checkout.root };
    await using host = await Host.boot(folders);
    await host.done(`set -e\n${database}`);
    const apiKey = await installRelease(host, checkout.root, settings);
    const cutOut = async (folder: string) => {
      await host.until('it is ready', 'curl -sf http://127.0.0.1:8080/readyz');
      for (const program of ['control-plane', 'node']) {
        const cwd = `readlink /proc/$(systemctl show -P MainPID matting-${program})/cwd`;
        t.is((await host.done(cwd)).trim(), folder);
      }
      const remove = 'remove docs/images/demo.jpg --to $(mktemp -d) --url http://127.0.0.1:8080';
      await host.done(`MATTING_API_KEY=${apiKey} sh bin/node24 bin/matting.ts ${remove}`, NEW);
    };
    await cutOut(OLD);
    // OpenVINO would need a download.
    await host.done('echo MATTING_CPU_RUNTIME=onnxruntime >> /etc/matting/node.env');
    const blocks = blocksOf(PAGE, section);
    const [, each] = blocks;
    if (each !== undefined)
      blocks.push(each.replace('=matting-node\n', '=matting-control-plane\n'));
    for (const lines of blocks) await host.done(`set -e\n${lines}`, NEW);
    await cutOut(NEW);
    t.regex(await host.done('matting doctor'), /, 0 failures/);
    for (const lines of blocksOf(PAGE, 'Go back')) await host.done(`set -e\n${lines}`);
    await cutOut(OLD);
    t.regex(await host.done('matting credits check'), /every balance agrees/);
  });
}

async function installRelease(host: Host, root: string, settings: string): Promise<string> {
  const page = path.relative(ROOT, path.join(root, 'docs/install.md'));
  const [setUp = ''] = blocksOf(page, 'Set up each machine');
  const [start = '', account = ''] = blocksOf(page, 'Run it on one machine');
  const [timers = ''] = blocksOf(page, 'Schedule checks and backups');
  const begin = /^systemctl.*$/m;
  await host.done(
    `set -e
    cd ${OLD}
    ${setUp}
    ${start.replace(begin, '').replace('https://matting.example', 'http://127.0.0.1:8080')}
    printf '${settings}' >> /etc/matting/control-plane.env
    printf '${NODE_SETTINGS}' >> /etc/matting/node.env
    install -d -m 700 -o matting -g matting ${path.dirname(MODELS)} ${MODELS}
    cp -r ${NEW}/model-cache/u2netp ${MODELS} && chown -R matting:matting ${MODELS}
    ${begin.exec(start)?.[0]}
    ${timers}`,
  );
  await host.until('it is ready', 'curl -sf http://127.0.0.1:8080/readyz');
  return /\bmk_\w+/.exec(await host.done(`set -e\n${account}`))?.[0] ?? '';
}
