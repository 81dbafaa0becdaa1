/**
 * The configuration as a bundle has it: of variables on the list the value where it has the form of
 * one, of every other only that it is set. What is new is left out until somebody lists it.
 */

import type { Environment } from '#program/env.ts';
import { MATTING_VARIABLES, unknownVariables } from '#program/env-names.ts';
import { isLoopback } from '#program/loopback.ts';

const SET = 'set';
/** Digits, true, false: no secret looks so. */
const PLAIN = /^(?:-?\d{1,12}(?:\.\d{1,6})?|true|false)$/i;

const WORDS: Readonly<Record<string, RegExp>> = {
  MATTING_COMMERCIAL_USE: /^(weights|strict)$/,
  MATTING_ENGINE_GOAL: /^(latency|throughput)$/,
  MATTING_EXECUTION_PROVIDER: /^(auto|cuda|tensorrt|webgpu|cpu)$/,
  MATTING_LOG_LEVEL: /^(trace|debug|info|warn|error|fatal|silent)$/,
  MATTING_MODEL: /^(isnet|modnet|u2netp)$/,
  MATTING_PRECISION: /^(auto|int8|fp32|fp16)$/,
  MATTING_PRICE_LIST: /^(credit|image|none)$/,
  MATTING_QUALITY: /^(fast|standard|best|permissive)$/,
  MATTING_REMOVEBG_DEFAULT_SIZE: /^(auto|preview|medium|hd|full|50mp)$/,
  MATTING_RESULT_DOWNLOADS: /^(stream|redirect)$/,
};
/** Numbers and truth values of these are shown. */
const PLAIN_NAMES =
  /_(MS|S|PORT|MAX|MIN|DAYS|DEMAND|ENGINES|THREADS|WORKERS|IMAGES|REFINEMENT|ESTIMATION|API|AREA|STORAGE|KEY|ADDRESSES|CALLBACKS|MINUTE|SIZE)$/;
const NEVER = /(SECRETS?|OPERATOR|API)_KEY(_PREVIOUS)?$|TOKEN|SECRET|PASSWORD/;
/** Of a URL how it begins, and which parameters it has. */
const URLS = /_(URL|ISSUER)$/;
const HOSTS = /_HOST$/;
/** Of others that change what the programs do: names alone. */
const OTHERS = /^(AWS|OTEL|NODE|UV|CUDA|NVIDIA|MALLOC|LD)_|^(HTTPS?|NO)_PROXY$|^TZ$/i;
const SCHEME = /^([a-z][a-z0-9+]{1,15}):/i;
const PARAMETER = /^[a-z][a-z-]{0,30}$/;

export function shownConfiguration(env: Environment) {
  const shown: Record<string, string> = {};
  for (const name of MATTING_VARIABLES) {
    const value = env[name];
    if (value !== undefined && value !== '') shown[name] = shownValue(name, value);
  }
  const others = Object.keys(env).filter(name => OTHERS.test(name));
  const unknown = unknownVariables(env).map(({ variable }) => variable);
  return { variables: shown, unknown, others: others.sort() };
}

function shownValue(name: string, value: string): string {
  if (NEVER.test(name) && name !== 'MATTING_READS_REQUIRE_IDEMPOTENCY_KEY') return SET;
  const words = WORDS[name];
  if (words !== undefined) return words.test(value) ? value : SET;
  if (URLS.test(name)) return urlKind(value);
  if (HOSTS.test(name)) return hostKind(value);
  return PLAIN_NAMES.test(name) && PLAIN.test(value) ? value : SET;
}

function urlKind(value: string): string {
  const scheme = SCHEME.exec(value)?.[1];
  if (scheme === undefined) return SET;
  if (!URL.canParse(value)) return `${scheme}:`;
  const parameters = [...new URL(value).searchParams.keys()].filter(key => PARAMETER.test(key));
  return `${scheme}:${parameters.length === 0 ? '' : ` with ${parameters.join(', ')}`}`;
}

function hostKind(value: string): string {
  if (isLoopback(value)) return 'this machine';
  return value === '0.0.0.0' || value === '::' ? 'every interface' : 'one address';
}
