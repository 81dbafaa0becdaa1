/** Sends photos through a node of a plan, as a caller does, to measure what callers get. */
import { type ServiceError, status } from '@grpc/grpc-js';
import sharp from 'sharp';
import { loadPlanOutlines } from '../../inference-node/serving/models/plan.ts';
import {
  type RgbaPicture,
  viewAsPixels,
} from '../../inference-node/serving/picture/rgba-picture.ts';
import type { Subject } from '../../proto/gen/matting/v1/matte_service.ts';
import { openNodeCaller } from '../node-caller.ts';
import { openService } from '../service.ts';

export interface SentFile {
  readonly file: Buffer;
  /** The sizes are as stored. */
  readonly width: number;
  readonly height: number;
}

export interface NodeCutout {
  /** RGBA, with the colours that the node estimated. */
  readonly cutout: RgbaPicture;
  /** The cut-out's alpha, one byte a pixel. */
  readonly alpha: Uint8Array;
  /** The roles of the models that took part: subject, opinion, second_look, surer_look. */
  readonly roles: readonly string[];
  /** Undefined if the node saw none. */
  readonly subject: Subject | undefined;
}

export interface PlanNode {
  /** @throws Error if a model of the plan was missing because its engine was down. */
  cutOut(sent: SentFile): Promise<NodeCutout>;
  close(): Promise<void>;
}

/** Environment of a node that runs a plan of plans.json, or a single model of that name. */
export async function planSetting(name: string): Promise<Record<string, string>> {
  const known = (await loadPlanOutlines()).some(plan => plan.name === name);
  return known ? { MATTING_QUALITY: name } : { MATTING_MODEL: name };
}

/** @param plan as planSetting takes it. */
export async function openPlanNode(plan: string): Promise<PlanNode> {
  const service = await openService(await planSetting(plan));
  const caller = openNodeCaller(service.nodeAddress, service.nodeToken);
  const send = (sent: SentFile) => caller.send(sent, 'png');
  return {
    cutOut: async sent => {
      // A node may drop a connection while this process computes errors and answers no ping.
      const { file, header } = await send(sent).catch((error: ServiceError) => {
        if (error.code !== status.UNAVAILABLE) throw error;
        return send(sent);
      });
      const { modelRuns, modelsMissing, subject } = header;
      if (modelsMissing.length > 0) throw new Error(`without ${modelsMissing.join()}`);
      const { data, info } = await sharp(file).raw().toBuffer({ resolveWithObject: true });
      const alpha = Uint8Array.from({ length: data.length / 4 }, (_none, at) => data[4 * at + 3]!);
      const { width, height } = info;
      const cutout = { rgba: viewAsPixels(data), width, height, translucent: true };
      return { cutout, alpha, roles: modelRuns.map(({ role }) => role), subject };
    },
    close: async () => {
      caller.close();
      await service.close();
    },
  };
}

/** Encodes a picture that a bench made as a lossless file. */
export async function encodeSent({ rgba, width, height }: RgbaPicture): Promise<SentFile> {
  const bytes = Buffer.from(rgba.buffer, rgba.byteOffset, rgba.byteLength);
  const image = sharp(bytes, { raw: { width, height, channels: 4 } });
  const file = await image.removeAlpha().png({ compressionLevel: 1 }).toBuffer();
  return { file, width, height };
}
