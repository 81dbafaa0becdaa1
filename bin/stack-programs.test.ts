import test from 'ava';
import { loadSupervisorConfig } from './config.ts';
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
