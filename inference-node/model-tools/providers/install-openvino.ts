/** Engines need six libraries of the wheel; the licences come with them. */
import {
  OPENVINO_FILES,
  OPENVINO_WHEEL,
  openvinoFolder,
  openvinoRefusal,
  ProviderError,
} from '@matting/serving/providers/provider-files.ts';
import { filesIn, installWheel, type WheelInstall } from './install-wheel.ts';

const NOTICE = /^openvino-[^/]+\.dist-info\/licenses\/(?:licensing\/)?([\w.-]+)$/;

export async function installOpenvino(options: WheelInstall): Promise<string> {
  const refusal = openvinoRefusal();
  if (refusal !== undefined) throw new ProviderError(`OpenVINO cannot be installed: ${refusal}`);
  const folder = openvinoFolder(options.providerDir);
  await installWheel(OPENVINO_WHEEL, folder, options, wheel =>
    filesIn(wheel, entry => OPENVINO_FILES.get(entry)?.name ?? NOTICE.exec(entry)?.[1]),
  );
  return folder;
}
