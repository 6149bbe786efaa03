// A batch's file, read whole in the page before anything is sent: about how many tokens there are.
// What is wrong with it says the service, by every rule.
const coserveCheck = (() => {
  const MAX_LINES = 50000;

  // As the service estimates: four characters of ASCII a token, two of others.
  function tokens(text) {
    let ascii = 0;
    for (let at = 0; at < text.length; at += 1) if (text.charCodeAt(at) < 128) ascii += 1;
    return Math.floor(ascii / 4) + Math.ceil((text.length - ascii) / 2);
  }
  function contentTokens(content) {
    if (typeof content === "string") return tokens(content);
    if (Array.isArray(content)) return content.reduce((sum, part) => sum + contentTokens(part?.text ?? part?.content ?? (typeof part === "string" ? part : "")), 0);
    return 0;
  }
  function promptTokens(body) {
    if (Array.isArray(body.messages)) return body.messages.reduce((sum, one) => sum + 4 + contentTokens(one?.content), 0);
    return contentTokens(body.prompt ?? body.input ?? "");
  }

  function estimate(text, report, endpoint) {
    let body;
    try {
      body = JSON.parse(text)?.body;
    } catch {
      return; // the service says what is wrong with it
    }
    if (body === null || typeof body !== "object" || Array.isArray(body)) return;
    if (report.model === null && typeof body.model === "string") report.model = body.model;
    report.promptTokens += promptTokens(body);
    report.answerTokens += endpoint.endsWith("/embeddings") ? 0 : Number(body.max_completion_tokens ?? body.max_tokens ?? body.max_output_tokens) || 256;
  }

  return async (file, endpoint, wanted, onProgress) => {
    const report = { numLines: 0, model: null, promptTokens: 0, answerTokens: 0 };
    const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", numRead = 0;
    const take = (text) => {
      if (!text.trim()) return;
      report.numLines += 1;
      if (report.numLines <= MAX_LINES) estimate(text, report, endpoint);
    };
    for (;;) {
      const { done, value } = await reader.read();
      if (!wanted()) {
        await reader.cancel();
        return null;
      }
      if (done) break;
      numRead += value.length;
      onProgress(report.numLines, numRead / file.size);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      lines.forEach(take);
    }
    if (rest) take(rest);
    return report;
  };
})();
