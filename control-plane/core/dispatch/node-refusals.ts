/** Says which field of a request no node can process (docs/formats.md). */

import type { NodeAbility } from '@matting/nodes/node-view.ts';
import { fieldOfCapability } from '@matting/proto/contract/capabilities.ts';
import {
  ContractError,
  invalidParameter,
  unsupportedOutput,
} from '@matting/proto/contract/errors.ts';
import { enlargingField } from '@matting/proto/contract/finishing/frame.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import {
  missingCapability,
  type RequestNeeds,
  SHORTFALLS,
  type Shortfall,
  shortfallOf,
} from './job-needs.ts';

/**
 * Undefined: a node can do the job, or no field is the cause.
 * @param incapableBoots nodes that refused the job, whatever they report
 */
export function fleetRefusalOf(
  nodes: readonly NodeAbility[],
  needs: RequestNeeds,
  incapableBoots: ReadonlySet<string> = new Set(),
): ContractError | undefined {
  let furthest = -1;
  for (const node of nodes) {
    const shortfall = shortfallOf(node, needs);
    if (shortfall === undefined && !incapableBoots.has(node.bootId)) return undefined;
    const reached = shortfall === undefined ? SHORTFALLS.length : SHORTFALLS.indexOf(shortfall);
    furthest = Math.max(furthest, reached);
  }
  if (furthest < 0) return undefined;
  const shortfall = SHORTFALLS[furthest];
  if (shortfall === 'model' && needs.model === undefined) return undefined;
  if (shortfall === 'field') return fieldRefusal(nodes, needs);
  return shortfall === undefined ? codecRefusal(needs) : shortfallRefusal(shortfall, needs);
}

const NO_NODE = 'No inference node of this service';

function fieldRefusal(nodes: readonly NodeAbility[], needs: RequestNeeds): ContractError {
  const [capability] = nodes.flatMap(node => missingCapability(node, needs) ?? []);
  if (capability === undefined) throw new Error('every node follows the fields');
  const wrong =
    capability === 'hints.many_points'
      ? 'has too many points, together with erase: no inference node takes as many. Send fewer'
      : 'is not available: no inference node follows it. Leave it out';
  return invalidParameter(fieldOfCapability(capability), wrong);
}

function shortfallRefusal(
  shortfall: Exclude<Shortfall, 'field'>,
  needs: RequestNeeds,
): ContractError {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  switch (shortfall) {
    case 'model':
      return invalidParameter('model', `is not available: no inference node has ${needs.model}`);
    case 'input-format':
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', unreadableDetail(inputFormat));
    case 'input-size':
      return new ContractError(
        'IMAGE_RESOLUTION_TOO_LARGE',
        `${NO_NODE} takes ${inputFormat} images of ${pixels} pixels. Scale it down.`,
      );
    case 'output-format':
      return unsupportedOutput(`${outputFormat} is not available: no inference node writes it`);
    case 'output-size': {
      const least = finishing?.frame.least ?? pixels;
      const wrong = `${outputFormat} is not available: no inference node writes ${least} pixels of it`;
      return unsupportedOutput(wrong);
    }
    case 'background': {
      const detail = `background: ${unreadableDetail(finishing?.background?.inputFormat)}`;
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
    }
    case 'memory':
      return memoryRefusal(needs);
  }
}

function unreadableDetail(format: InputFormat | null | undefined): string {
  if (format !== 'heic') return `${NO_NODE} reads ${format}. Send another format.`;
  return (
    `${NO_NODE} reads heic. Send another format. To read heic, the operator installs libheif-js ` +
    "beside the service, or Debian's libheif-examples on the nodes (MATTING_HEIF)."
  );
}

function memoryRefusal(needs: RequestNeeds): ContractError {
  const { pixels, outputFormat, finishing, hintsFile } = needs;
  const wrong = 'no inference node has the memory for';
  const { frame, background, steps = {} } = finishing ?? {};
  const framePixels = frame?.most ?? 0;
  const ownPixels = pixels ?? IMAGE_PIXELS_MAX;
  if (background && background.pixels > Math.max(ownPixels, framePixels)) {
    return invalidParameter('background', `is too large: ${wrong} ${background.pixels} pixels`);
  }
  if (hintsFile !== undefined && hintsFile.pixels > Math.max(ownPixels, framePixels)) {
    return invalidParameter('hints_file', `is too large: ${wrong} ${hintsFile.pixels} pixels`);
  }
  if (framePixels > ownPixels) {
    const field = enlargingField(steps);
    return invalidParameter(field, `is too large: ${wrong} a frame of ${framePixels} pixels`);
  }
  const detail = `The image is too large: ${wrong} ${ownPixels} pixels as ${outputFormat}.`;
  return new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
}

/** For a codec that nodes report and fail to use. */
function codecRefusal({ inputFormat, outputFormat }: RequestNeeds): ContractError | undefined {
  if (outputFormat === 'jxl') {
    return unsupportedOutput('jxl is not available: no inference node writes this image in it');
  }
  const detail = `${NO_NODE} could read this image.`;
  const isOptional = inputFormat === 'jxl' || inputFormat === 'heic';
  return isOptional ? new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail) : undefined;
}
