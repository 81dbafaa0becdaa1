import test from 'ava';
import { commandLine, loadSupervisorConfig } from './config.ts';
import { controlPlaneEnv } from './stack-programs.ts';

test('reads need no Idempotency-Key, unless the operator says so', t => {
  const neededBy = (env: Record<string, string>) =>
    controlPlaneEnv(loadSupervisorConfig(env)).MATTING_READS_REQUIRE_IDEMPOTENCY_KEY;
  t.is(neededBy({}), 'false');
  t.is(neededBy({ MATTING_READS_REQUIRE_IDEMPOTENCY_KEY: 'true' }), 'true');
});

test('callbacks reach this machine if only it can call, and otherwise as the operator says', t => {
  const networksOf = (env: Record<string, string>) => {
    const given = controlPlaneEnv(loadSupervisorConfig(env));
    return [given.MATTING_ALLOW_HTTP_CALLBACKS, given.MATTING_ALLOWED_NETWORKS];
  };
  t.deepEqual(networksOf({}), ['true', '127.0.0.0/8,::1/128']);
  t.deepEqual(networksOf({ MATTING_HOST: '::1' }), ['true', '127.0.0.0/8,::1/128']);
  t.deepEqual(networksOf({ MATTING_HOST: '0.0.0.0' }), [undefined, undefined]);
  t.deepEqual(networksOf({ MATTING_BASE_URL: 'https://m.example' }), [undefined, undefined]);
  const own = { MATTING_ALLOW_HTTP_CALLBACKS: 'false', MATTING_ALLOWED_NETWORKS: '10.0.0.0/8' };
  t.deepEqual(networksOf(own), ['false', '10.0.0.0/8']);
});

test('a command that is printed has the places of this start, and no secret', t => {
  const line = (env: Record<string, string>) => commandLine({ env }, 'keys list');
  t.is(line({}), 'npm run matting -- keys list');
  t.is(
    line({ MATTING_DATA_DIR: "/srv/a b/it's" }),
    `MATTING_DATA_DIR='/srv/a b/it'\\''s' npm run matting -- keys list`,
  );
  const relative = line({ MATTING_DATA_DIR: 'data', MATTING_MODEL_DIR: '/models' });
  t.is(
    relative,
    `MATTING_DATA_DIR=${process.cwd()}/data MATTING_MODEL_DIR=/models npm run matting -- keys list`,
  );
  const database = line({ MATTING_DATABASE_URL: 'mysql://user:SECRET@db/matting' });
  t.regex(database, /^npm run matting -- keys list +# set MATTING_DATABASE_URL/);
  t.notRegex(database, /SECRET/);
});
