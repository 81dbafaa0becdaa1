import test from 'ava';
import { commandLine, loadSupervisorConfig } from './config.ts';
import { controlPlaneEnv, nodeEnv } from './stack-programs.ts';

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

test('each model that is offered has a node of its own, with its part of the memory', t => {
  const nodesOf = (env: Record<string, string>) => {
    const config = loadSupervisorConfig(env);
    return config.nodes.map(node => {
      const given = nodeEnv(config, node);
      const { MATTING_MODEL, MATTING_QUALITY, MATTING_NODE_PORT, MATTING_NODE_HTTP_PORT } = given;
      const what = MATTING_MODEL ?? MATTING_QUALITY;
      return [what, MATTING_NODE_PORT, MATTING_NODE_HTTP_PORT, given.MATTING_NODE_MEMORY_PERCENT];
    });
  };
  t.deepEqual(nodesOf({}), [[undefined, '50051', '50052', undefined]]);
  const MATTING_MODELS_OFFERED = 'best,mine,fast';
  const others = [
    ['mine', '50053', '50054', '33'],
    ['fast', '50055', '50056', '33'],
  ];
  for (const own of [{}, { MATTING_QUALITY: 'best' }, { MATTING_MODEL: 'best' }]) {
    const nodes = nodesOf({ ...own, MATTING_MODELS_OFFERED });
    t.deepEqual(nodes, [['best', '50051', '50052', '33'], ...others]);
  }
  const env = { MATTING_MODELS_OFFERED: 'isnet,mine', MATTING_MODEL: 'isnet' };
  const own = { MATTING_NODE_ID: 'here', MATTING_PRECISION: 'fp32' };
  const more = { ...own, MATTING_NODE_MEMORY_PERCENT: '40' };
  const config = loadSupervisorConfig({ ...env, ...more });
  const [first, second] = config.nodes.map(node => nodeEnv(config, node));
  t.like(first, { ...more, MATTING_MODEL: 'isnet' });
  t.like(second, { MATTING_NODE_ID: 'here-50053', MATTING_NODE_MEMORY_PERCENT: '40' });
  t.is(second?.MATTING_PRECISION, undefined);
});

test('what is offered begins with the plan that is set, and leaves ports for its nodes', t => {
  for (const [env, message] of [
    [{ MATTING_QUALITY: 'best' }, /MATTING_MODELS_OFFERED must be a list that begins with best,/],
    [{ MATTING_MODEL: 'mine' }, /MATTING_MODELS_OFFERED must be a list that begins with mine,/],
    [{ MATTING_NODE_HTTP_PORT: '65534' }, /MATTING_NODE_HTTP_PORT must be a port with 2 .*65536/],
    [{ MATTING_METRICS_PORT: '50053' }, /MATTING_NODE_HTTP_PORT must be a port with 2 .*50053/],
  ] as const) {
    t.throws(() => loadSupervisorConfig({ MATTING_MODELS_OFFERED: 'fast,mine', ...env }), {
      message,
    });
  }
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
