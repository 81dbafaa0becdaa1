/**
 * MATTING_COMMERCIAL_USE: refuses models whose terms do not permit commercial use, before anything
 * of them is fetched or prepared. What does not run here cannot be asked for by a caller either.
 */
import { ConfigError, type EnvProblem } from '#program/env.ts';
import type { UseTerms } from './licence.ts';
import { listManifests, loadManifest, MANIFEST_DIRECTORY, type ModelManifest } from './manifest.ts';
import type { CommercialUseGate, ModelSettings } from './model-settings.ts';
import { loadPlanOutlines, outlineOf, type PlanEntry, type PlanOutline } from './plan.ts';
import type { MatteRole } from './prepared-model.ts';

const VARIABLE = 'MATTING_COMMERCIAL_USE';
const ROLES_IN_WORDS: Readonly<Record<MatteRole, string>> = {
  subject: 'subject',
  secondLook: 'second look',
  opinion: 'second opinion',
};

/** Why `gate` refuses the model: what is not permitted. Empty: it is admitted. */
export function refusalsOf(
  { licence: { weights, trainingData } }: Pick<ModelManifest, 'licence'>,
  gate: CommercialUseGate | undefined,
): readonly string[] {
  if (gate === undefined) return [];
  const asked: (readonly [string, UseTerms])[] = [['weights', weights]];
  if (gate === 'strict') asked.push(['training data', trainingData]);
  return asked
    .filter(([, { commercialUse }]) => commercialUse !== 'yes')
    .map(([what, { commercialUse, reason, source }]) => {
      const use = commercialUse === 'no' ? 'not permitted' : 'unclear';
      return `commercial use of its ${what} is ${use}: ${reason} ${source}`;
    });
}

/**
 * The plan that the settings ask for, if each of its models is admitted.
 * @throws ConfigError naming each model that is refused, its roles, why, and what is admitted;
 * ModelError as loadManifest and outlineOf do.
 */
export async function admittedOutlineOf(settings: ModelSettings): Promise<PlanOutline> {
  const outline = await outlineOf(settings);
  await requireAdmitted(outline.entries, settings.commercialUse);
  return outline;
}

/** @throws as admittedOutlineOf. */
export async function requireAdmitted(
  entries: readonly PlanEntry[],
  gate: CommercialUseGate | undefined,
  directory = MANIFEST_DIRECTORY,
): Promise<void> {
  if (gate === undefined) return;
  const problems: EnvProblem[] = [];
  for (const name of new Set(entries.map(({ model }) => model))) {
    const refusals = refusalsOf(await loadManifest(name, directory), gate);
    if (refusals.length === 0) continue;
    const roles = entries.filter(({ model }) => model === name).map(({ role }) => role);
    const words = [...new Set(roles)].map(role => ROLES_IN_WORDS[role]).join(' and ');
    const expected = `met by every model: ${gate} refuses ${name} (${words}); ${refusals.join('; ')}`;
    problems.push({ variable: VARIABLE, expected });
  }
  if (problems.length === 0) return;
  throw new ConfigError([...problems, await wayOut(gate, directory)]);
}

/** What an operator may do instead. */
async function wayOut(gate: CommercialUseGate, directory: string): Promise<EnvProblem> {
  const models = await listManifests(directory);
  const admitted = new Set<string>();
  for (const name of models) {
    const refusals = refusalsOf(await loadManifest(name, directory), gate);
    if (refusals.length === 0) admitted.add(name);
  }
  const own = 'a model of your own (models/README.md, "Commercial use")';
  if (admitted.size === 0) {
    const expected = `${own}: ${gate} admits none of ${models.join(', ')}`;
    return { variable: 'MATTING_MODEL', expected };
  }
  const single = `${[...admitted].join(' or ')}, or ${own}`;
  const plans = (await loadPlanOutlines(directory))
    .filter(({ entries }) => entries.every(({ model }) => admitted.has(model)))
    .map(({ name }) => name);
  if (plans.length === 0) return { variable: 'MATTING_MODEL', expected: single };
  const expected = `${plans.join(' or ')}, or MATTING_MODEL ${single}`;
  return { variable: 'MATTING_QUALITY', expected };
}
