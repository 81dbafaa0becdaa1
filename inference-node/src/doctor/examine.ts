/**
 * `matting doctor --node`: looks at everything a node needs, one thing after the other, each with a
 * bound of its own. It fetches and prepares nothing, and leaves a node that runs alone.
 */
import { arch, platform, release } from 'node:os';
import { askHttp, baseOf } from '#program/doctor/ask-http.ts';
import { type Finding, failure, look, ok, warning } from '#program/doctor/findings.ts';
import { refusalOf } from '#program/doctor/reach.ts';
import { secondTokenFinding, weaknessOf } from '#program/doctor/secret-strength.ts';
import { tlsFindings } from '#program/doctor/tls-findings.ts';
import { ConfigError } from '#program/env.ts';
import pkg from '../../../package.json' with { type: 'json' };
import { type Config, type Environment, loadConfig } from '../config.ts';
import type { ExecutionProvider } from '../models/prepared-model.ts';
import { codecFindings } from './codec-findings.ts';
import { diskFindings, machineFindings } from './machine-findings.ts';
import { modelFindings, planFindings } from './model-findings.ts';
import { providerFindings, providerMsMax } from './provider-findings.ts';

const VARIABLES = 'docs/operations.md, "Environment"';
const BUG = 'this is a fault of the doctor itself: report it with this line';

export async function examineNode(env: Environment): Promise<readonly Finding[]> {
  const system = `${platform()} ${release()} ${arch()}`;
  const version = ok(
    'version',
    `matting ${pkg.version} on Node ${process.versions.node}, ${system}`,
  );
  let config: Config;
  try {
    config = loadConfig(env);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const wrong = error.problems.map(({ variable, expected }) =>
      failure('configuration', `${variable} must be ${expected}`, `set it: ${VARIABLES}`),
    );
    return [version, ...wrong];
  }
  const findings: Finding[] = [version, ...configurationFindings(config)];
  findings.push(...(await look('TLS', BUG, () => tlsFindings(config.tls))));
  const { outline, findings: ofPlan } = await planFindings(config.modelSettings);
  findings.push(...ofPlan);
  let provider: ExecutionProvider | undefined;
  const choose = async () => {
    const chosen = await providerFindings(config);
    provider = chosen.provider;
    return chosen.findings;
  };
  const driver = 'see the driver and its libraries, or set MATTING_EXECUTION_PROVIDER=cpu';
  findings.push(...(await look('provider', driver, choose, await providerMsMax(config))));
  if (outline !== undefined) {
    const models = () => modelFindings(config, outline, provider);
    findings.push(...(await look('models', 'matting models fetch', models)));
  }
  findings.push(...(await look('machine', BUG, machineFindings)));
  findings.push(...(await look('codecs', 'npm ci, on this machine', codecFindings)));
  findings.push(...(await look('disk', BUG, () => diskFindings(config.modelSettings.modelDir))));
  findings.push(...(await registryFindings(config)), ...(await runningFindings(config)));
  return findings;
}

function configurationFindings(config: Config): Finding[] {
  const { warnings, token, tokenAccepted, callerTokens } = config;
  const findings = warnings.map(line =>
    warning('configuration', line, `correct it, or leave it where it is meant: ${VARIABLES}`),
  );
  const tokens = [
    ['MATTING_NODE_TOKEN', token] as const,
    ['MATTING_NODE_TOKEN_ACCEPTED', tokenAccepted] as const,
    ...callerTokens.map(({ name, token: text }) => [`the caller token of ${name}`, text] as const),
  ];
  for (const [name, text] of tokens) {
    const weakness = text === undefined ? undefined : weaknessOf(text);
    if (weakness === undefined) continue;
    const advice = 'make another: openssl rand -hex 32';
    findings.push(warning('secrets', `${name} ${weakness}`, advice));
  }
  if (tokenAccepted !== undefined) findings.push(secondTokenFinding('this node'));
  return [...findings, ok('configuration', 'every variable can be used')];
}

/** One control plane that answers is enough for a node; the others do not know it meanwhile. */
async function registryFindings({ registryAddresses }: Config): Promise<Finding[]> {
  if (registryAddresses.length === 0) {
    return [ok('registry', 'none is configured: this node serves direct callers alone')];
  }
  const refusals = await Promise.all(registryAddresses.map(refusalOf));
  const findings: Finding[] = [];
  for (const [index, address] of registryAddresses.entries()) {
    const refusal = refusals[index];
    if (refusal === undefined) findings.push(ok('registry', `${address} takes connections`));
    else {
      const advice = 'see MATTING_REGISTRY_HOST there, and the network between';
      const all = refusals.every(one => one !== undefined);
      const judged = all ? failure : warning;
      findings.push(judged('registry', `${address}: ${refusal}`, advice));
    }
  }
  return findings;
}

async function runningFindings({ host, httpPort }: Config): Promise<Finding[]> {
  if (httpPort === 0) return [];
  const answer = await askHttp(`${baseOf(host, httpPort)}/readyz`);
  if (answer === undefined) {
    const found = `none answers at ${host}:${httpPort}`;
    return [warning('node', found, 'start it, or read its last line on standard error')];
  }
  if (answer.status === 200) return [ok('node', `serving, at ${host}:${httpPort}`)];
  const state = answer.text.trim().slice(0, 40);
  return [failure('node', `it runs and is not ready: ${state}`, 'see its log')];
}
