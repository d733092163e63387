def report(results, folder, docs):
    pass
