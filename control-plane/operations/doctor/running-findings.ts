/** The doctor looks at the control plane that runs on this machine. */
import type { CoreSettings } from '@matting/core/settings.ts';
import { askHttp } from '@matting/program/doctor/ask.ts';
import { type Finding, failure, ok, warning } from '@matting/program/doctor/findings.ts';
import { httpBaseOf } from '@matting/program/ports/addresses.ts';
import { VERSION } from '@matting/program/version.ts';

const CONTROL_PLANE = 'control plane';

/** Looks at what listens at the addresses of this configuration, and at no other machine. */
export async function controlPlaneFindings(config: CoreSettings): Promise<readonly Finding[]> {
  const { host, port, metricsHost, metricsPort } = config;
  if (port === 0 || metricsPort === 0) return [];
  const ready = await askHttp(`${httpBaseOf(host, port)}/readyz`);
  if (ready === undefined) {
    const found = `no answer at ${host}:${port} of this machine`;
    const advice = 'start it, read its last line on standard error, or run doctor on its machine';
    return [warning(CONTROL_PLANE, found, advice)];
  }
  const metrics = (await askHttp(`${httpBaseOf(metricsHost, metricsPort)}/metrics`))?.text ?? '';
  const version = /^matting_control_info\{version="([^"]+)"\}/m.exec(metrics)?.[1];
  const findings: Finding[] = [];
  if (version === undefined) {
    const found = `no metrics of a control plane at ${metricsHost}:${metricsPort}`;
    const advice = `check that a control plane with these variables listens at ${host}:${port}`;
    findings.push(warning(CONTROL_PLANE, found, advice));
  } else if (version !== VERSION) {
    const found = `it runs ${version}, and this is ${VERSION}`;
    findings.push(warning(CONTROL_PLANE, found, 'restart it to finish the upgrade'));
  }
  if (ready.status === 200) return [...findings, ok(CONTROL_PLANE, `ready at ${host}:${port}`)];
  const causes = [...metrics.matchAll(/^matting_control_unready\{cause="([^"]+)"\} 1$/gm)];
  const why = causes.map(([, cause]) => cause).join(', ') || `/readyz is ${ready.status}`;
  const advice = 'see the line "not ready" in its log';
  return [...findings, failure(CONTROL_PLANE, `not ready: ${why}`, advice)];
}
